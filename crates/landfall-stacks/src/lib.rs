//! Enqueue in transactions of drivers other than sqlx, on PostgreSQL.
//!
//! A service that talks to its database through [`tokio_postgres`] or [`diesel_async`] puts its messages into
//! `landfall_outbox` here, in its own transaction: they are published if and only if that commits. Everything behind the
//! outbox (the relay, the tables' migrations, dead letters) is `landfall serve`, or `landfall-postgres` in some process.
//!
//! Limits are checked before the driver is asked. Every value travels as a parameter of a plain type (text, bigint,
//! bytea), so neither driver needs a feature for UUIDs, JSON or dates.

#[cfg(feature = "diesel-async")]
pub mod diesel_async;
#[cfg(any(feature = "diesel-async", feature = "tokio-postgres"))]
mod statement;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;
