//! What a worker says on stdout while it lives: one JSON object a line.
//!
//! A line is written before the thing it announces begins and after the thing it confirms is over, so whatever the
//! process was doing when it died has an `Invoke` and no end: nobody knows how it ended.

use std::io::Write;
use std::sync::Arc;

use landfall::MessageId;
use serde::{Deserialize, Serialize};

/// Where a writer tells its history: on stdout in a worker process, in memory inside the test's own.
pub type Listener = Arc<dyn Fn(Event) + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Everything is open, the roles begin.
    Ready,
    /// A transaction with this message is about to begin.
    Invoke { id: MessageId, key: String },
    /// It is committed.
    Ok { id: MessageId },
    /// It is rolled back, on purpose or not.
    Failed { id: MessageId },
    /// The connection was lost under the commit.
    Unknown { id: MessageId },
    /// After that, somebody looked: whether it was committed.
    Resolved { id: MessageId, committed: bool },
    /// A relay has settled something of this shard under this epoch for the first time.
    Settled { shard: u16, epoch: i64 },
    /// Every role has ended in good order.
    Stopped,
}

impl Event {
    /// One write of one line under the stream's lock, which is flushed at its end.
    pub fn say(&self) {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        // When the parent is gone nobody listens, and the worker is about to notice.
        let _ = std::io::stdout().lock().write_all(&line);
    }

    /// `None` for a line that is none of ours; a process that is killed may leave a half one.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}
