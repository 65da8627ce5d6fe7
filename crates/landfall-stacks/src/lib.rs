//! Enqueue in transactions of drivers other than sqlx, on PostgreSQL.
//!
//! A service that uses [`tokio_postgres`] or [`diesel_async`] enqueues messages in its own transaction. They are
//! published if and only if it commits. Relay, migrations and dead letters are the job of `landfall serve` or
//! `landfall-postgres`.
//!
//! Limits are checked before the driver is called. Every value is a parameter of a plain type (text, bigint, bytea), so
//! neither driver needs a feature for UUIDs, JSON or dates.

#[cfg(feature = "diesel-async")]
pub mod diesel_async;
#[cfg(any(feature = "diesel-async", feature = "tokio-postgres"))]
mod statement;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;
