//! The consumer on every database: batches, order, strategies.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod aftermath;
mod batches;
mod early_after_trouble;
mod equivalence;
mod ground;
mod handlers;
mod letters;
mod on_disk;
mod order;
mod place;
mod redis_front;
mod retry_lane;
mod silent;
mod strategies;
mod unruly;
mod unruly_strategies;

/// One test of each case on each database. A case takes a [`ground::Ground`].
macro_rules! on_every_database {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                if let Some(ground) = crate::ground::Ground::<landfall_sqlite::Sqlite>::new().await {
                    super::$case(ground).await;
                }
            })+
        }
        mod on_postgresql {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                if let Some(ground) = crate::ground::Ground::<landfall_postgres::Postgres>::new().await {
                    super::$case(ground).await;
                }
            })+
        }
        mod on_mariadb {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                if let Some(ground) = crate::ground::Ground::<landfall_mysql::MySql>::new().await {
                    super::$case(ground).await;
                }
            })+
        }
    };
}
pub(crate) use on_every_database;
