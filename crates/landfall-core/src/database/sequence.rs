//! The port of sequence state, for consumers that check sequence numbers in addition to ids.

use crate::{GroupName, Inbox, Result};

/// Topic and key of an entity.
pub type EntityName<'a> = (&'a str, &'a str);

/// The last applied sequence number per entity and group. Every method works inside the caller's transaction.
pub trait Sequences: Inbox {
    /// Returns the last number that `group` applied for each of `names` (sorted, each once); `None` for an unknown
    /// entity. Locks all of them until the transaction ends, unknown ones included, so a concurrent call waits.
    fn reached(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        names: &[EntityName<'_>],
    ) -> impl Future<Output = Result<Vec<Option<i64>>>> + Send;

    /// Stores the last applied numbers. Requires a preceding `reached` for the same names in this transaction.
    fn reach(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        numbers: &[(EntityName<'_>, i64)],
    ) -> impl Future<Output = Result<()>> + Send;
}
