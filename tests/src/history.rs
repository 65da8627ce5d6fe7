//! The events that a worker prints to stdout: one JSON object per line.
//!
//! A worker prints `Invoke` before a transaction starts and its result after it has ended. So a transaction that was
//! interrupted by a kill has an `Invoke` without a result: its outcome is unknown.

use std::io::Write;
use std::sync::Arc;

use landfall::MessageId;
use serde::{Deserialize, Serialize};

/// Receives the events of a writer: stdout in a worker process, memory inside a test.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Everything is open, and the roles start.
    Ready,
    /// A transaction with this message is about to start.
    Invoke { id: MessageId, key: String },
    /// The transaction is committed.
    Ok { id: MessageId },
    /// The transaction is rolled back, on purpose or not.
    Failed { id: MessageId },
    /// The connection was lost during the commit.
    Unknown { id: MessageId },
    /// The writer looked up an unknown commit: whether it was committed.
    Resolved { id: MessageId, committed: bool },
    /// A relay has settled a message of this shard under this epoch for the first time.
    Settled { shard: u16, epoch: i64 },
    /// All roles have shut down gracefully.
    Stopped,
}

impl Event {
    /// Writes one line under the stream's lock, and flushes it.
    pub fn print(&self) {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        // If the parent is gone the write fails, and the worker is about to exit.
        let _ = std::io::stdout().lock().write_all(&line);
    }

    /// Returns `None` for other lines; a killed process may also leave an incomplete one.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}
