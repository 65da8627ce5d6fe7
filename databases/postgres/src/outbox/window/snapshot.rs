//! `pg_snapshot`: which transactions were visible at one point in time.

use std::fmt;

use landfall_core::{Error, ErrorKind, Result};

/// A parsed snapshot, with the text PostgreSQL wrote it as: `xmin:xmax:in_progress,…`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    text: String,
    /// Transactions from this id on had not started.
    xmax: u64,
    /// Transactions below `xmax` that were still in progress, sorted.
    in_progress: Vec<u64>,
}

impl Snapshot {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let unreadable = || Error::new(ErrorKind::Corrupt, format!("{text:?} is not a transaction snapshot"));
        let mut parts = text.splitn(3, ':').skip(1);
        let mut part = || parts.next().ok_or_else(unreadable);
        let xmax = part()?.parse().map_err(|_| unreadable())?;
        let in_progress = part()?.split(',').filter(|xid| !xid.is_empty()).map(str::parse);
        let mut in_progress: Vec<u64> = in_progress.collect::<std::result::Result<_, _>>().map_err(|_| unreadable())?;
        in_progress.sort_unstable();
        Ok(Self { text: text.to_owned(), xmax, in_progress })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn in_progress(&self) -> &[u64] {
        &self.in_progress
    }

    /// Returns whether the writes of transaction `xid` were visible, provided that it committed.
    pub(crate) fn is_visible(&self, xid: u64) -> bool {
        xid < self.xmax && self.in_progress.binary_search(&xid).is_err()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_transactions_are_visible() {
        let snapshot = Snapshot::parse("10:20:10,14,15").unwrap();
        let visible: Vec<u64> = (5..25).filter(|xid| snapshot.is_visible(*xid)).collect();
        assert_eq!(visible, [5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 18, 19]);
        assert!(Snapshot::parse("7:7:").unwrap().is_visible(6) && !Snapshot::parse("7:7:").unwrap().is_visible(7));
        assert_eq!(Snapshot::parse("10:20:").unwrap().as_str(), "10:20:");
    }

    #[test]
    fn malformed_snapshots_are_corrupt() {
        for text in ["", "10", "10:20", "10:x:", "10:20:a"] {
            assert_eq!(Snapshot::parse(text).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        }
    }
}
