//! Redrive jobs: hands frozen selections of dead letters back at a limited rate (D3).
//!
//! ```text
//!   start (HTTP, command) ─▶ redrive, redrive_item ─▶ Runner ─▶ redriving ─▶ the consumer ─▶ done or parked again
//!                                                       └───────── settle ◀──────────────────┘
//! ```
//!
//! A job is rows in the database of its letters. So it survives any process, and its counts are those of the letters.
//! The runner only decides when the next letters are handed back. It holds a lease; a runner that lost it changes
//! nothing more. [`Redrives`](landfall_core::Redrives) starts, shows and controls jobs.

mod options;
mod runner;

pub use options::Options;
pub use runner::Runner;
