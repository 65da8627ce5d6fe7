//! `pg_snapshot`: which transactions could be seen at one moment.

use std::fmt;

use landfall_core::{Error, ErrorKind, Result};

/// A snapshot as PostgreSQL writes it, `xmin:xmax:open,…`, and what it says.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    text: String,
    /// Everything from here on had not begun.
    end: u64,
    /// What was open, in order.
    open: Vec<u64>,
}

impl Snapshot {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let unreadable = || Error::new(ErrorKind::Corrupt, format!("{text:?} is no snapshot of transactions"));
        let mut parts = text.splitn(3, ':').skip(1);
        let mut part = || parts.next().ok_or_else(unreadable);
        let end = part()?.parse().map_err(|_| unreadable())?;
        let open = part()?.split(',').filter(|xid| !xid.is_empty()).map(str::parse);
        let mut open: Vec<u64> = open.collect::<std::result::Result<_, _>>().map_err(|_| unreadable())?;
        open.sort_unstable();
        Ok(Self { text: text.to_owned(), end, open })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether what transaction `xid` wrote was visible, if it was committed at all.
    pub(crate) fn shows(&self, xid: u64) -> bool {
        xid < self.end && self.open.binary_search(&xid).is_err()
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
    fn a_snapshot_shows_what_had_ended() {
        let snapshot = Snapshot::parse("10:20:10,14,15").unwrap();
        let shown: Vec<u64> = (5..25).filter(|xid| snapshot.shows(*xid)).collect();
        assert_eq!(shown, [5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 18, 19]);
        assert!(Snapshot::parse("7:7:").unwrap().shows(6) && !Snapshot::parse("7:7:").unwrap().shows(7));
        assert_eq!(Snapshot::parse("10:20:").unwrap().as_str(), "10:20:");
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        for text in ["", "10", "10:20", "10:x:", "10:20:a"] {
            assert_eq!(Snapshot::parse(text).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        }
    }
}
