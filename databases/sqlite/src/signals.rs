//! How the relay hears of a commit: at once from its own process, within 50 ms from any other.
//!
//! In the process a counter grows with every [`wake`](Signals::wake). Across processes SQLite's `data_version` tells a
//! connection that another one has committed something; it is read on a connection of its own, because a connection
//! does not see its own commits in it. That something may be a lease or an inbox row, so a look at the outbox follows.
//!
//! Invariant: what was committed after a caller's last wait returned ends its next one, however late that begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Row, SqliteConnection};
use tokio::sync::{Mutex, OnceCell, watch};

use crate::Sqlite;

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Signals {
    /// How often somebody in this process said that it committed.
    wakes: watch::Sender<u64>,
    options: SqliteConnectOptions,
    watcher: Mutex<Watcher>,
    is_in_memory: OnceCell<bool>,
}

/// `data_version` is a number of one connection, so all callers compare the values of the same one, and a value never
/// equals one from a connection before it.
#[derive(Default)]
struct Watcher {
    connection: Option<SqliteConnection>,
    connections: u32,
}

/// What one clone of the adapter has heard of already.
#[derive(Default)]
pub(crate) struct Heard {
    wakes: AtomicU64,
    commits: AtomicU64,
}

impl Signals {
    pub(crate) fn new(options: &SqliteConnectOptions) -> Self {
        Self {
            wakes: watch::Sender::new(0),
            // Twenty looks a second would drown everything else in a debug log.
            options: options.clone().create_if_missing(false).disable_statement_logging(),
            watcher: Mutex::default(),
            is_in_memory: OnceCell::new(),
        }
    }

    pub(crate) fn wake(&self) {
        self.wakes.send_modify(|wakes| *wakes += 1);
    }

    pub(crate) async fn wait(&self, database: &Sqlite, heard: &Heard, at_most: Duration) {
        let mut wakes = self.wakes.subscribe();
        let count = *wakes.borrow_and_update();
        if heard.wakes.swap(count, Ordering::AcqRel) != count {
            return;
        }
        let woken = async {
            // The sender lives as long as this instance, so an error cannot come.
            wakes.changed().await.ok();
            heard.wakes.store(*wakes.borrow(), Ordering::Release);
        };
        let either = async {
            tokio::select! {
                () = woken => {}
                () = self.commit_elsewhere(database, heard) => {}
            }
        };
        // Running out of time is an answer like any other.
        tokio::time::timeout(at_most, either).await.ok();
    }

    /// Returns when another connection committed something that is due in the outbox.
    async fn commit_elsewhere(&self, database: &Sqlite, heard: &Heard) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match self.look(database, heard).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    // Only a hint is lost: the relay polls anyway.
                    tracing::debug!(%error, file = %database.inner.name, "looking for commits failed");
                    self.watcher.lock().await.connection = None;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn look(&self, database: &Sqlite, heard: &Heard) -> Result<bool, sqlx::Error> {
        let is_any_due = database.statements().is_any_due.clone();
        if *self.is_in_memory.get_or_try_init(|| is_in_memory(database)).await? {
            // There is one connection, and it cannot tell that it committed.
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
        if heard.commits.load(Ordering::Acquire) == commits {
            return Ok(false);
        }
        let is_due = sqlx::query_scalar(is_any_due).fetch_one(connection).await?;
        heard.commits.store(commits, Ordering::Release);
        Ok(is_due)
    }
}

/// Asked of SQLite, because a pool of the caller's may spell it in many ways: a database in memory has no file.
async fn is_in_memory(database: &Sqlite) -> Result<bool, sqlx::Error> {
    let databases = sqlx::query("PRAGMA database_list").fetch_all(&database.inner.pool).await?;
    for row in databases {
        if row.try_get::<String, _>("name")? == "main" {
            return Ok(row.try_get::<Option<String>, _>("file")?.unwrap_or_default().is_empty());
        }
    }
    Ok(false)
}
