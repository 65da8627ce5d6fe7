//! The port of what each entity has reached: for consumers that check numbers, not only ids.

use crate::{GroupName, Inbox, Result};

/// Topic and key: what a group counts by.
pub type EntityName<'a> = (&'a str, &'a str);

/// Where a group has got to with each entity. Every method works inside the transaction it is given.
pub trait Sequences: Inbox {
    /// The number that `group` has reached with each of `names` (sorted, each once), in their order; `None` for one it
    /// never met. Locked until the transaction ends, also those it never met: whoever asks meanwhile waits.
    fn reached(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        names: &[EntityName<'_>],
    ) -> impl Future<Output = Result<Vec<Option<i64>>>> + Send;

    /// From the commit on these are the numbers reached. After `reached` for the same names in this transaction.
    fn reach(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        numbers: &[(EntityName<'_>, i64)],
    ) -> impl Future<Output = Result<()>> + Send;
}
