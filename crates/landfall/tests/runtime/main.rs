//! The consumer on every database: batches, order, retries, idempotence.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod adverse_broker;
mod adverse_idempotence;
mod batches;
mod database;
mod dead_letter_topic;
mod durability;
mod early_after_disconnect;
mod equivalence;
mod fixture;
mod handler_errors;
mod handlers;
mod idempotence;
mod order;
mod poison_row;
mod redis_cache;
mod rehearsal;
mod retry_lane;
mod silent_connections;

/// Generates one test for each case and database. A case takes a [`fixture::Fixture`].
macro_rules! on_every_database {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                if let Some(fixture) = crate::fixture::Fixture::<landfall_sqlite::Sqlite>::new().await {
                    super::$case(fixture).await;
                }
            })+
        }
        mod on_postgresql {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                if let Some(fixture) = crate::fixture::Fixture::<landfall_postgres::Postgres>::new().await {
                    super::$case(fixture).await;
                }
            })+
        }
        mod on_mariadb {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                if let Some(fixture) = crate::fixture::Fixture::<landfall_mysql::MySql>::new().await {
                    super::$case(fixture).await;
                }
            })+
        }
    };
}
pub(crate) use on_every_database;
