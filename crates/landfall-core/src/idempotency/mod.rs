//! Idempotency records: work that a caller may ask for again is done once, and its answer is kept.
//!
//! ```text
//!   (new) ──claim──▶ in_flight ──Done──▶ completed          a repeat replays the stored answer
//!   issued ─claim──▶    │  │  └──NothingDone──▶ released ──claim──▶ in_flight, next epoch
//!                       │  └──lease expired, OnUnknown::Rerun──claim──▶ in_flight, next epoch
//!                       └──Unknown or lease expired, OnUnknown::Uncertain──▶ uncertain ──▶ a person resolves
//! ```
//!
//! * [`Identity`] says what is done once, [`FingerprintBuilder`] hashes what makes two requests equal.
//! * [`IdempotencyRecords`] is the separate store: a claim has a lease and an epoch, and only the current epoch
//!   settles.
//! * [`RecordWriter`] puts the record into the caller's transaction: a crash rolls both back, so no lease is needed.
//! * [`OneTimeTokens`] issues tokens. Consuming one claims its record, so failed work gives it back.
//!
//! Stores share the pure rules of [`decide`] and [`settled`]. All times are those of the store's clock.

mod decide;
mod fingerprint;
mod identity;
mod port;
mod record;
mod snapshot;
mod token;

pub use crate::database::idempotent_append::Fingerprint;
pub use crate::database::lease::Epoch;
pub use decide::{Decision, StoredRecord, decide, settled};
pub use fingerprint::FingerprintBuilder;
pub use identity::{Identity, IdentityKind, RecordId, Scope};
pub use port::{IdempotencyRecords, OneTimeTokens, RecordWriter};
pub use record::{
    Claim, OnUnknown, Opened, Outcome, RecordFilter, RecordRow, RecordState, RecordStats, Resolution, Settled, Terms,
};
pub use snapshot::{Body, Snapshot};
pub use token::Token;
