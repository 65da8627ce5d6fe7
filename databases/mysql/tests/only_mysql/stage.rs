//! A migrated database of the test's own, and the steps that many tests share.

use std::time::Duration;

use landfall_core::{
    Decision, Holder, Key, Lease, Leases, Message, MessageId, OutboxEntry, OutboxQueue, Schema, Settlement, Shard,
    TopicName,
};
use landfall_mysql::{MySql, Options};
use landfall_testkit::eventually;
use landfall_testkit::servers::fresh_mysql_database;

pub(crate) const LONG: Duration = Duration::from_secs(3600);
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// `None`, after saying so, if there is no server.
pub(crate) async fn migrated() -> Option<MySql> {
    let url = fresh_mysql_database().await?;
    let database = open(&url).await;
    database.migrate().await.unwrap();
    Some(database)
}

pub(crate) async fn open(url: &str) -> MySql {
    MySql::connect(url, Options { max_connections: 6, ..Options::default() }).await.unwrap()
}

/// Another instance on the same database, as another process would have it.
pub(crate) async fn another(database: &MySql) -> MySql {
    with(database, Options { prefix: database.prefix().clone(), ..Options::default() }).await
}

/// The same with other options.
pub(crate) async fn with(database: &MySql, options: Options) -> MySql {
    let pool = sqlx::mysql::MySqlPoolOptions::new()
        .max_connections(4)
        .connect_with((*database.pool().connect_options()).clone())
        .await
        .unwrap();
    MySql::from_pool(pool, options)
}

pub(crate) fn message(key: &str, sequence: i64) -> Message {
    Message::new(TopicName::new("orders").unwrap(), format!("{key}/{sequence}"))
        .with_key(Key::new(key).unwrap())
        .with_sequence(sequence)
}

pub(crate) async fn lease_all(database: &MySql, holder: &str, ttl: Duration) -> Vec<Lease> {
    let mut leases = Vec::new();
    for shard in 0..database.shards() {
        let name = Shard(shard).lease_name();
        leases.extend(database.acquire(&name, &Holder(holder.into()), ttl).await.unwrap());
    }
    assert_eq!(leases.len(), usize::from(database.shards()));
    leases
}

pub(crate) async fn due(database: &MySql, leases: &[Lease]) -> Vec<MessageId> {
    database.next(leases, 1000).await.unwrap().iter().map(|entry| entry.message_id).collect()
}

pub(crate) fn settlement(entry: &OutboxEntry, decision: Decision) -> Settlement {
    Settlement { row: entry.row, shard: entry.shard, decision }
}

/// Reads what is due, calls it published, and answers with its ids.
pub(crate) async fn publish_everything(database: &MySql, leases: &[Lease]) -> Vec<MessageId> {
    let entries = database.next(leases, 1000).await.unwrap();
    let settlements: Vec<_> = entries.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(database.settle(leases, &settlements).await.unwrap().len(), entries.len());
    entries.iter().map(|entry| entry.message_id).collect()
}

/// To be held while `innodb_trx` is read. The server makes that table new only if nobody has read it for a tenth of a
/// second: tests that look at the same time would keep each other from ever seeing anything.
pub(crate) async fn turn_to_see_transactions() -> tokio::sync::MutexGuard<'static, ()> {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let turn = TURN.lock().await;
    tokio::time::sleep(Duration::from_millis(120)).await;
    turn
}

/// Waits until some statement on this database waits for a lock.
pub(crate) async fn somebody_is_blocked(database: &MySql) {
    eventually(SOON, "a statement waits for a lock", async || {
        let _turn = turn_to_see_transactions().await;
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
