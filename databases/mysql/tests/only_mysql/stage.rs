//! A migrated database for one test, and steps that the tests share.

use std::time::Duration;

use landfall_core::Schema;
use landfall_mysql::{MySql, Options};
use landfall_testkit::eventually;
pub(crate) use landfall_testkit::relay_steps::{LONG, SOON, due, lease_all, message, publish_everything, settlement};
use landfall_testkit::servers::fresh_mysql_database;

/// Returns `None`, after reporting it, if there is no server.
pub(crate) async fn migrated() -> Option<MySql> {
    let url = fresh_mysql_database().await?;
    let database = open(&url).await;
    database.migrate().await.unwrap();
    Some(database)
}

pub(crate) async fn open(url: &str) -> MySql {
    MySql::connect(url, Options { max_connections: 6, ..Options::default() }).await.unwrap()
}

/// Opens another instance on the same database, which stands for another process.
pub(crate) async fn another(database: &MySql) -> MySql {
    with(database, Options { prefix: database.prefix().clone(), ..Options::default() }).await
}

/// Opens another instance with other options.
pub(crate) async fn with(database: &MySql, options: Options) -> MySql {
    let pool = sqlx::mysql::MySqlPoolOptions::new()
        .max_connections(4)
        .connect_with((*database.pool().connect_options()).clone())
        .await
        .unwrap();
    MySql::from_pool(pool, options)
}

/// Locks the right to read `innodb_trx`. The server refreshes that table only if it was not read for a tenth of a
/// second: tests that read it at the same time would never see a change.
pub(crate) async fn lock_transaction_list() -> tokio::sync::MutexGuard<'static, ()> {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let turn = TURN.lock().await;
    tokio::time::sleep(Duration::from_millis(120)).await;
    turn
}

/// Waits until some statement on this database waits for a lock.
pub(crate) async fn until_blocked(database: &MySql) {
    eventually(SOON, "a statement waits for a lock", async || {
        let _turn = lock_transaction_list().await;
        let blocked: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM information_schema.innodb_trx trx
             JOIN information_schema.processlist process ON process.id = trx.trx_mysql_thread_id
             WHERE process.db = DATABASE() AND trx.trx_state = 'LOCK WAIT'",
        )
        .fetch_one(database.pool())
        .await
        .unwrap();
        blocked > 0
    })
    .await;
}
