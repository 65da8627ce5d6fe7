//! The embedded broker: append-only partitions on disk, in the process that uses them.
//!
//! A message is **accepted** when it stands in its partition's file and that file was synced; it survives a power cut.
//! Readers never see a record before that. The path of a record, and of this crate's files:
//!
//! ```text
//! publish ─▶ record ─▶ batch ─▶ writer ─▶ appender ─▶ segment          one thread writes, syncs once per group
//!                                                        │
//!            subscriber ◀─ tracker ◀─ lanes ◀─ cursor ◀──┘             only up to what was synced
//!                              └─▶ group ─▶ flusher                    finished offsets, up to the first gap
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
//! served and never skipped. The one thing that is cut away is an unfinished tail: `recovery.rs` says how it
//! is told apart from damage. [`ReadOnlyLog::verify`] finds all damage that there is, and [`Log::repair`] gives up, on
//! request, what cannot be read. After the first write or sync that fails the log takes nothing more until it is
//! reopened, because nobody knows what the failed call left behind.
//!
//! [`ErrorKind::Corrupt`]: landfall_core::ErrorKind::Corrupt

mod admin;
mod appender;
mod aside;
mod assignment;
mod batch;
mod broker;
mod buffers;
mod compaction;
mod cursor;
mod deletion;
mod describe;
pub mod disk;
mod durable;
mod examine;
mod flusher;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod group_file;
mod groups;
mod index;
mod keeper;
mod lag;
mod lanes;
mod links;
mod lock;
mod log;
mod maintain;
mod member;
mod members;
mod options;
mod partition;
mod place;
mod producer;
mod producers;
mod publish;
mod read_only;
mod reader;
mod record;
mod recovery;
mod repair;
mod retention;
mod rewrite;
mod salvage;
mod seek;
mod seen;
mod segment;
mod settings;
mod start;
mod store;
mod subscriber;
mod topic;
mod topic_file;
mod topic_reader;
mod tracker;
mod verify;
mod walk;
mod writer;

pub use admin::Growth;
pub use describe::{PartitionDescription, TopicDescription};
pub use lag::{GroupDescription, PartitionLag};
pub use log::Log;
pub use maintain::Maintenance;
pub use options::{Acknowledge, Flush, Gaps, Options};
pub use producer::Producer;
pub use read_only::ReadOnlyLog;
pub use repair::{Lost, Repaired};
pub use settings::TopicSettings;
pub use verify::{Problem, Report};
