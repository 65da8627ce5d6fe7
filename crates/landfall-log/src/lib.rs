//! The embedded broker: append-only partitions on disk, in the process that uses them.
//!
//! A message is **accepted** when it stands in its partition's file and that file was synced; it survives a power cut.
//! Readers never see a record before that. The path of a record, and of this crate's files:
//!
//! ```text
//! write/    publish ─▶ writer ─▶ work ─▶ store ─▶ appender         one thread writes, syncs once per group
//! storage/                                           └─▶ record in batch in segment, an index beside each
//!                                                                   │
//! group/    subscriber ◀─ tracker ◀─ lanes ◀─ cursor ◀──────────────┘  only up to what was synced
//!                             └─▶ progress ─▶ flusher                  finished offsets, up to the first gap
//! ```
//!
//! On disk:
//!
//! ```text
//! format                              the version of everything below
//! producers.json                      who the idempotent producers are
//! lock                                held, and naming its process, while a Log is open
//! topics/<topic>/topic.json           how many partitions, and the topic's settings
//! topics/<topic>/<partition>/<first offset>.segment
//! topics/<topic>/<partition>/<first offset>.index       of a finished segment; can be made again from it
//! topics/<topic>/<partition>/start.json                 where the partition begins, once something was removed
//! topics/~deleted-<number>            a deleted topic, about to be removed
//! groups/<group>/<topic>.json         how far a group has come
//! damaged/…                           what repairs have put aside
//! ```
//!
//! A file called `new` is the unfinished replacement of a file beside it; it means nothing and may be deleted.
//!
//! Stored bytes that are not what was written are reported with file and position ([`ErrorKind::Corrupt`]), never
//! served and never skipped. The one thing that is cut away is an unfinished tail: `storage/recovery.rs` says how it
//! is told apart from damage. [`ReadOnlyLog::verify`] finds all damage that there is, and [`Log::repair`] gives up, on
//! request, what cannot be read. After the first write or sync that fails the log takes nothing more until it is
//! reopened, because nobody knows what the failed call left behind.
//!
//! [`ErrorKind::Corrupt`]: landfall_core::ErrorKind::Corrupt

mod broker;
mod damage;
pub mod disk;
mod doctor;
mod durable;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod lock;
mod log;
mod maintain;
mod options;
mod producer;
mod read;
mod storage;
mod topic;
mod write;

pub use damage::repair::{Lost, Repaired};
pub use damage::verify::{Problem, Report};
pub use group::lag::{GroupDescription, PartitionLag};
pub use log::Log;
pub use maintain::round::Maintenance;
pub use options::{Acknowledge, Flush, Gaps, Options};
pub use producer::Producer;
pub use read::read_only::ReadOnlyLog;
pub use topic::admin::Growth;
pub use topic::describe::{PartitionDescription, TopicDescription};
pub use topic::settings::TopicSettings;
