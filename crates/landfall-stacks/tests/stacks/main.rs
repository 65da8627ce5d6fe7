//! Enqueue through other drivers on a real PostgreSQL server, read back through the relay's adapter.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod diesel_async;
mod stage;
mod tokio_postgres;
