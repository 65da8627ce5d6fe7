//! Wake-ups: a relay learns of a commit at once in its own process, and within 50 ms in any other.
//!
//! In the process, a counter grows with every [`wake`](Signals::wake). Across processes, SQLite's `data_version` shows
//! a connection that another one has committed. It is read on a separate connection, because it does not include a
//! connection's own commits. The commit may concern a lease or an inbox row, so the outbox is checked afterwards.
//!
//! Invariant: a commit after a caller's last wait returned ends its next wait, however late that begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Row, SqliteConnection};
use tokio::sync::{Mutex, OnceCell, watch};

use crate::Sqlite;

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Signals {
    /// Number of wake-ups in this process.
    wakes: watch::Sender<u64>,
    options: SqliteConnectOptions,
    watcher: Mutex<Watcher>,
    is_in_memory: OnceCell<bool>,
}

/// `data_version` is specific to a connection, so all callers read the same one. The number of the connection
/// distinguishes its values from those of its predecessors.
#[derive(Default)]
struct Watcher {
    connection: Option<SqliteConnection>,
    connections: u32,
}

/// The wake-ups and commits that one clone of the adapter has seen.
#[derive(Default)]
pub(crate) struct Seen {
    wakes: AtomicU64,
    commits: AtomicU64,
}

impl Signals {
    pub(crate) fn new(options: &SqliteConnectOptions) -> Self {
        Self {
            wakes: watch::Sender::new(0),
            // Twenty reads a second would flood a debug log.
            options: options.clone().create_if_missing(false).disable_statement_logging(),
            watcher: Mutex::default(),
            is_in_memory: OnceCell::new(),
        }
    }

    pub(crate) fn wake(&self) {
        self.wakes.send_modify(|wakes| *wakes += 1);
    }

    pub(crate) async fn wait(&self, database: &Sqlite, seen: &Seen, at_most: Duration) {
        let mut wakes = self.wakes.subscribe();
        let count = *wakes.borrow_and_update();
        if seen.wakes.swap(count, Ordering::AcqRel) != count {
            return;
        }
        let woken = async {
            // The sender lives as long as this instance, so this cannot fail.
            wakes.changed().await.ok();
            seen.wakes.store(*wakes.borrow(), Ordering::Release);
        };
        let either = async {
            tokio::select! {
                () = woken => {}
                () = self.commit_elsewhere(database, seen) => {}
            }
        };
        // A timeout makes the relay poll, as a wake-up does.
        tokio::time::timeout(at_most, either).await.ok();
    }

    /// Returns once another connection has committed a message that is due.
    async fn commit_elsewhere(&self, database: &Sqlite, seen: &Seen) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match self.check_commits(database, seen).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    // Only a wake-up is lost; the relay polls anyway.
                    tracing::debug!(%error, file = %database.inner.name, "check for commits failed");
                    self.watcher.lock().await.connection = None;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn check_commits(&self, database: &Sqlite, seen: &Seen) -> Result<bool, sqlx::Error> {
        let is_any_due = database.statements().is_any_due.text();
        if *self.is_in_memory.get_or_try_init(|| is_in_memory(database)).await? {
            // The only connection does not see its own commits in `data_version`.
            return sqlx::query_scalar(is_any_due).fetch_one(&database.inner.pool).await;
        }
        let mut watcher = self.watcher.lock().await;
        let Watcher { connection, connections } = &mut *watcher;
        let connection = match connection {
            Some(connection) => connection,
            none => {
                *connections += 1;
                none.insert(self.options.connect().await?)
            }
        };
        let version: u32 = sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut *connection).await?;
        let commits = u64::from(*connections) << 32 | u64::from(version);
        if seen.commits.load(Ordering::Acquire) == commits {
            return Ok(false);
        }
        let is_due = sqlx::query_scalar(is_any_due).fetch_one(connection).await?;
        seen.commits.store(commits, Ordering::Release);
        Ok(is_due)
    }
}

/// Asks SQLite, because a caller's pool can name an in-memory database in many ways: it has no file.
async fn is_in_memory(database: &Sqlite) -> Result<bool, sqlx::Error> {
    let databases = sqlx::query("PRAGMA database_list").fetch_all(&database.inner.pool).await?;
    for row in databases {
        if row.try_get::<String, _>("name")? == "main" {
            return Ok(row.try_get::<Option<String>, _>("file")?.unwrap_or_default().is_empty());
        }
    }
    Ok(false)
}
