//! Reading the next stretch of a long window while the relay decodes, publishes and settles this one.
//!
//! Rows of a window never change, so it does not matter when they are read. Whether a key is blocked does change: so
//! nothing is read ahead while any key is in trouble, and what was read is thrown away as soon as a message fails.

use landfall_core::{Result, RowId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::Postgres;
use crate::cursor::Group;
use crate::database::ANSWER_WITHIN;
use crate::outbox_read::{SPREAD, span};

/// After a batch of more bytes than this the next is not kept in memory beside it.
const BYTES_MOST: usize = 4 << 20;
/// Where `walk` has the payload.
const PAYLOAD: usize = 10;

/// Part of a window, by its ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) shards: Vec<i16>,
    pub(crate) s1: String,
    pub(crate) s2: String,
    pub(crate) after: RowId,
    pub(crate) upto: RowId,
    pub(crate) at_most: i64,
}

/// At most one stretch, being read.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// With several windows open the next stretch is likely to be of another one.
    pub(crate) is_worth_it: bool,
    reading: Option<(Stretch, JoinHandle<Result<Vec<PgRow>>>)>,
}

impl ReadAhead {
    /// What was read of `stretch`, if that is what was read. A failure is left to whoever reads it again.
    pub(crate) async fn take(&mut self, stretch: &Stretch) -> Option<Vec<PgRow>> {
        let (_, reading) = self.reading.take().filter(|(read, _)| read == stretch)?;
        reading.await.ok()?.ok().filter(|rows| is_untroubled(rows))
    }

    pub(crate) fn forget(&mut self) {
        self.reading = None;
    }
}

impl Postgres {
    /// Begins to read what will be asked for next if all of `rows` is published, which were just read of `group`.
    pub(crate) fn read_ahead(&self, ahead: &mut ReadAhead, group: &Group, rows: &[PgRow], limit: usize) {
        let bytes = |row: &PgRow| row.try_get_raw(PAYLOAD).ok()?.as_bytes().ok().map(<[u8]>::len);
        if !ahead.is_worth_it || !is_untroubled(rows) || rows.iter().filter_map(bytes).sum::<usize>() > BYTES_MOST {
            return;
        }
        let Some(last) = rows.last().and_then(|row| row.try_get::<Option<RowId>, _>(0).ok()?) else { return };
        // Fewer than were asked for, and the first is not a message: this was the end, or the rest lies far apart.
        let is_full = rows.len() > limit;
        let Some(stretch) = group.stretch_beyond(last, limit).filter(|_| is_full) else { return };
        let (database, reading) = (self.clone(), stretch.clone());
        // Whoever waits for it may have gone. What did not come in time is read again, as what failed is.
        let walk =
            async move { timeout(ANSWER_WITHIN, database.walk(&reading)).await.unwrap_or_else(|_| Ok(Vec::new())) };
        let reading = tokio::spawn(walk);
        ahead.reading = Some((stretch, reading));
    }
}

/// As the first row says, which is not a message.
fn is_untroubled(rows: &[PgRow]) -> bool {
    rows.first().is_some_and(|header| matches!(header.try_get(12), Ok(false)))
}

impl Group {
    /// The ids in `known`, if they lie close enough together to be walked along.
    pub(crate) fn stretch_of(&self, known: &[RowId]) -> Option<Stretch> {
        let (first, last) = (known.first()?, known.last()?);
        (last - first < SPREAD * known.len() as i64).then(|| self.stretch(first - 1, *last, i64::MAX))?
    }

    pub(crate) fn stretch(&self, after: RowId, upto: RowId, at_most: i64) -> Option<Stretch> {
        let window = self.window.as_ref()?;
        let (s1, s2) = (self.s1.as_str().to_owned(), window.s2.as_str().to_owned());
        Some(Stretch { shards: self.shards.clone(), s1, s2, after, upto, at_most })
    }

    /// What comes after `last`, up to which the window has just been read.
    fn stretch_beyond(&self, last: RowId, limit: usize) -> Option<Stretch> {
        let window = self.window.as_ref()?;
        let known: Vec<RowId> = self.unsettled().skip_while(|id| *id <= last).take(limit).collect();
        if !known.is_empty() {
            return self.stretch_of(&known);
        }
        let is_walked = window.scanned_to < RowId::MAX;
        is_walked.then(|| self.stretch(last, last.saturating_add(span(limit)), limit as i64))?
    }
}
