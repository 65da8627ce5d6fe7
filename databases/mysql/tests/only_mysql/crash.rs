//! The adapter acts only on rows that are on disk. The server shows a commit before it is flushed. Without a flush, a
//! relay could publish a message whose transaction a crash undoes, and a consumer acknowledge a duplicate whose
//! original is lost.

use std::time::Duration;

use landfall_core::adapter::Admission;
use landfall_core::{
    CompetingQueue, Database, ErrorKind, GroupName, Inbox, InboxView, Message, OutboxQueue, Result, Schema,
};
use landfall_mysql::{MySql, Options};
use landfall_testkit::eventually;
use landfall_testkit::servers::{MariaDbOptions, MariaDbServer, private_mariadb_with};
use tokio::task::JoinHandle;

use crate::stage::{LONG, SOON, lease_all, message, migrated, open};

/// Long enough for a call that does not wait for the disk.
const A_WHILE: Duration = Duration::from_millis(300);

const IN_OUTBOX: &str = "SELECT COUNT(*) FROM landfall_outbox";
const IN_INBOX: &str = "SELECT COUNT(*) FROM landfall_inbox";

/// A database on a server whose log writes can be blocked.
struct Held {
    server: MariaDbServer,
    url: String,
    database: MySql,
}

impl Held {
    async fn start() -> Option<Self> {
        let server = private_mariadb_with(MariaDbOptions { holdable_log: true, ..Default::default() }).await?;
        let url = server.fresh_database().await.unwrap();
        let database = open(&url).await;
        database.migrate().await.unwrap();
        Some(Self { server, url, database })
    }

    /// Blocks the log during a commit. Returns once a plain read sees one row while the commit is not acknowledged.
    async fn under<F>(&self, commit: F, counted: &'static str) -> JoinHandle<Result<()>>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.server.hold_log().unwrap();
        let commit = tokio::spawn(commit);
        eventually(SOON, "others see the commit", async || self.count(counted).await == 1).await;
        assert!(!commit.is_finished(), "it was answered before it was on the disk");
        commit
    }

    async fn count(&self, statement: &'static str) -> i64 {
        sqlx::query_scalar(statement).fetch_one(self.database.pool()).await.unwrap()
    }

    /// Kills the server and starts it again.
    async fn crash(&mut self) {
        self.server.kill_9().await.unwrap();
        self.server.release_log().unwrap();
        self.server.restart().await.unwrap();
        self.database = open(&self.url).await;
    }
}

/// Asserts that `reading` does not return while the log is blocked.
async fn waits<T: Send + 'static>(reading: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let mut reading = tokio::spawn(reading);
    let early = tokio::time::timeout(A_WHILE, &mut reading).await;
    assert!(early.is_err(), "it answered with what is on no disk");
    reading
}

#[tokio::test]
async fn rows_read_by_a_relay_survive_a_kill() {
    let Some(mut held) = Held::start().await else { return };
    let leases = lease_all(&held.database, "the relay", LONG).await;
    let next = |held: &Held| {
        let (database, leases) = (held.database.clone(), leases.clone());
        async move { database.next(&leases, 10).await }
    };
    let claim = |held: &Held| {
        let database = held.database.clone();
        async move { database.claim(10).await.map(|mut claim| claim.take_entries()) }
    };
    let append = |held: &Held| {
        let database = held.database.clone();
        async move { database.append(&[message("a", 1)]).await }
    };
    let commit = held.under(append(&held), IN_OUTBOX).await;
    let (in_order, without_order) = (waits(next(&held)).await, waits(claim(&held)).await);
    held.crash().await;
    assert_eq!(commit.await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
    assert!(in_order.await.unwrap().is_err() && without_order.await.unwrap().is_err());
    assert_eq!(held.count(IN_OUTBOX).await, 0, "the row that the plain read saw is lost");

    let commit = held.under(append(&held), IN_OUTBOX).await;
    let (in_order, without_order) = (waits(next(&held)).await, waits(claim(&held)).await);
    held.server.release_log().unwrap();
    commit.await.unwrap().unwrap();
    assert_eq!(in_order.await.unwrap().unwrap().len(), 1);
    assert_eq!(without_order.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn duplicates_known_to_the_inbox_survive_a_kill() {
    let Some(mut held) = Held::start().await else { return };
    let (group, message) = (GroupName::new("stock").unwrap(), message("a", 1));
    let handle = |held: &Held| handle(held.database.clone(), group.clone(), message.clone());
    let look = |held: &Held| {
        let (database, group, id) = (held.database.clone(), group.clone(), message.id);
        async move { database.handled(&group, &[id]).await }
    };
    let taking_effect = |held: &Held| {
        let handled = handle(held);
        async { handled.await.map(drop) }
    };
    let commit = held.under(taking_effect(&held), IN_INBOX).await;
    let (copy, looking) = (waits(handle(&held)).await, waits(look(&held)).await);
    held.crash().await;
    assert_eq!(commit.await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
    assert!(copy.await.unwrap().is_err() && looking.await.unwrap().is_err());
    assert_eq!(held.count(IN_INBOX).await, 0, "the row that the plain read saw is lost");

    let commit = held.under(taking_effect(&held), IN_INBOX).await;
    let (copy, looking) = (waits(handle(&held)).await, waits(look(&held)).await);
    held.server.release_log().unwrap();
    commit.await.unwrap().unwrap();
    assert_eq!(copy.await.unwrap().unwrap(), Admission::Duplicate);
    assert_eq!(looking.await.unwrap().unwrap(), [message.id]);
}

#[tokio::test]
async fn flush_after_a_crash_does_not_vouch_for_earlier_reads() {
    let Some(mut held) = Held::start().await else { return };
    let before = held.database.clone();
    let writer = before.clone();
    let commit = held.under(async move { writer.append(&[message("a", 1)]).await }, IN_OUTBOX).await;
    let mut look = before.begin().await.unwrap();
    let seen: i64 = sqlx::query_scalar(IN_OUTBOX).fetch_one(&mut *look).await.unwrap();
    assert_eq!(seen, 1);
    held.crash().await;
    assert_eq!(held.count(IN_OUTBOX).await, 0, "the row that was read is lost");
    assert!(before.flush(look).await.is_err(), "the outcome is unknown");
    assert!(commit.await.unwrap().is_err());
    held.database.flush(held.database.begin().await.unwrap()).await.unwrap();
}

/// Checks for a duplicate as a consumer does.
async fn handle(database: MySql, group: GroupName, message: Message) -> Result<Admission> {
    let mut transaction = database.begin().await?;
    let admission = database.admit(&mut transaction, &group, &message, None).await?;
    if admission == Admission::Duplicate {
        database.flush(transaction).await?;
    } else {
        database.commit(transaction).await?;
    }
    Ok(admission)
}

#[tokio::test]
async fn claim_requires_a_second_connection() {
    let Some(database) = migrated().await else { return };
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(1);
    let pool = pool.connect_with((*database.pool().connect_options()).clone()).await.unwrap();
    let error = MySql::from_pool(pool, Options::default()).claim(1).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("a pool of two connections"), "{error}");
}
