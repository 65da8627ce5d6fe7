//! # Landfall: every message lands, once
//!
//! A change committed in one service reaches every other service: never lost, never applied twice, never out of
//! order, never stuck where nobody sees it. The modules follow the path of a message:
//!
//! 1. [`produce`]: a message is enqueued in the same transaction as the change it tells of.
//! 2. [`relay`]: what was committed is taken to the broker, per key in order.
//! 3. [`consume`]: the handler's writes and the record that the message was handled commit together.
//! 4. [`retry`]: what a handler, or anything else, calls is retried where that helps and left alone where it hurts.
//! 5. [`housekeeping`]: what has been kept long enough goes; [`RetentionPlan`] says how long that is.
//!
//! An outbox that is already there is taken in by [`import`].
//!
//! The words ([`Message`], [`Key`], [`Outcome`]…) and the ports are re-exported from `landfall-core`; the adapters
//! stand behind features: `sqlite`, `postgres`, `mysql`; `log`, `kafka`, `nats`, `rabbitmq`, `redis-streams`, `sqs`. No step names an adapter. The features `tokio-postgres` and
//! `diesel-async` bring `stacks`: enqueue for services that use those drivers.

mod call_deadline;
pub mod consume;
mod dead_letter;
pub mod housekeeping;
pub mod import;
pub mod produce;
pub mod relay;
pub mod retry;
mod supervised_task;

pub use landfall_core::*;

#[cfg(feature = "kafka")]
pub use landfall_kafka as kafka;
#[cfg(feature = "log")]
pub use landfall_log as log;
#[cfg(feature = "mysql")]
pub use landfall_mysql as mysql;
#[cfg(feature = "nats")]
pub use landfall_nats as nats;
#[cfg(feature = "postgres")]
pub use landfall_postgres as postgres;
#[cfg(feature = "rabbitmq")]
pub use landfall_rabbitmq as rabbitmq;
#[cfg(feature = "redis-streams")]
pub use landfall_redis as redis_streams;
#[cfg(feature = "sqlite")]
pub use landfall_sqlite as sqlite;
#[cfg(feature = "sqs")]
pub use landfall_sqs as sqs;
#[cfg(any(feature = "diesel-async", feature = "tokio-postgres"))]
pub use landfall_stacks as stacks;
