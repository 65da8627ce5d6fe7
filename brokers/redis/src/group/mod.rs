//! A member of a group: it leases streams, reads and delivers their entries, and acknowledges finished ones.
//!
//! Redis lets any consumer of a group read any stream, so the members share the streams out by leases: a key in Redis
//! with the member's token, which expires unless it is renewed. A member that lost a lease without noticing must not
//! read new entries, or the order of a key would break. So it reads in a transaction that Redis refuses if the lease
//! has changed ([`read`]). The next holder claims what the group was given and has not finished before it reads new
//! entries ([`claim`]).

mod blocking_read;
mod claim;
mod leases;
pub(crate) mod member;
mod read;
mod settle;
mod trim;

/// The consumer name under which every member reads. The lease says which member that is at present; a name for each
/// member would leave thousands behind in Redis.
const CONSUMER: &str = "landfall";
