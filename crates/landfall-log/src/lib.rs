//! The embedded broker: append-only partitions on disk, in the process that uses them.
//!
//! A message is **accepted** once it is written to its partition's file and that file is synced; it then survives a
//! power cut. Readers never see a record earlier. The path of a record through this crate:
//!
//! ```text
//! write/    publish ─▶ writer ─▶ writer_thread ─▶ store ─▶ appender   one thread writes, syncs once per group
//! storage/                                                    └─▶ record in batch in segment, an index beside each
//!                                                                                      │
//! group/    subscriber ◀─ in_flight ◀─ lanes ◀─ cursor ◀───────────────────────────────┘  only what was synced
//!                             └─▶ progress ─▶ flusher                    acknowledged offsets, up to the first gap
//! ```
//!
//! On disk:
//!
//! ```text
//! format                              the version of everything below
//! producers.json                      the registered idempotent producers
//! lock                                locked while a Log is open; holds its process id
//! topics/<topic>/topic.json           number of partitions, and the topic's settings
//! topics/<topic>/<partition>/<first offset>.segment
//! topics/<topic>/<partition>/<first offset>.index       of a finished segment; can be rebuilt from it
//! topics/<topic>/<partition>/start.json                 the first offset, once retention removed a segment
//! topics/~deleted-<number>            a deleted topic, about to be removed
//! groups/<group>/<topic>.json         the acknowledged offsets of a group
//! damaged/…                           damaged files that a repair replaced
//! ```
//!
//! A file called `new` is the unfinished replacement of a file beside it. It is never read and may be deleted.
//!
//! Stored bytes that differ from what was written are reported with file and position ([`ErrorKind::Corrupt`]). They
//! are never served and never skipped. The only bytes that the log discards are an unfinished tail:
//! `storage/recovery.rs` describes how it is distinguished from damage. [`ReadOnlyLog::verify`] finds all damage, and
//! [`Log::repair`] gives up, on request, the offsets that cannot be read. After the first failed write or sync the log
//! refuses messages until it is reopened, because the result of the failed call is unknown.
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
