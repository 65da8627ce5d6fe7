//! Real servers for tests, each private to the test process: own port, own folder, gone when the process is.

mod account;
mod postgres;
mod watchdog;

pub use postgres::{PostgresOptions, PostgresServer, fresh_postgres_database, postgres, private_postgres};
