//! A member of a group: which streams it reads, what it fetched from them, and what it has finished.
//!
//! Redis lets any consumer of a group read any stream, so the members agree by leases which stream is whose: a key in
//! Redis with the member's token, that runs out unless it is renewed. A member that lost a lease without noticing must
//! not take new entries, or the order of a key would break; so it reads in a transaction that Redis refuses when the
//! lease has changed ([`read`]). What it took before is claimed by whoever has the lease next, before anything new
//! ([`claim`]).

mod bell;
mod claim;
mod leases;
pub(crate) mod member;
mod read;
mod settle;
pub(crate) mod shelf;
mod trim;

/// The name under which every member reads. The lease says who that is at the moment; a name for each would leave
/// thousands behind.
const CONSUMER: &str = "landfall";
