//! Reading the next stretch of a long window while the relay publishes and settles this one.
//!
//! Rows of a window never change, so it does not matter when they are read. Whether a key is blocked does change: so
//! nothing is read ahead while any key is in trouble, and what was read is thrown away as soon as a message fails.

use landfall_core::{OutboxEntry, Result, RowId};
use tokio::task::JoinHandle;

use crate::Postgres;
use crate::cursor::{Cursor, Group};
use crate::outbox_read::{Found, SPREAD, span};

/// After a batch of more bytes than this the next is not kept in memory beside it.
const BYTES_MOST: usize = 4 << 20;

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
pub(crate) struct ReadAhead(Option<(Stretch, JoinHandle<Result<Found>>)>);

impl ReadAhead {
    /// What was read of `stretch`, if that is what was read. A failure is left to whoever reads it again.
    pub(crate) async fn take(&mut self, stretch: &Stretch) -> Option<Found> {
        let (_, reading) = self.0.take().filter(|(read, _)| read == stretch)?;
        match reading.await {
            Ok(Ok(found)) if !found.troubled => Some(found),
            _ => None,
        }
    }

    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

impl Postgres {
    /// Begins to read what the next call will ask for if all of `batch` is published.
    pub(crate) fn read_ahead(&self, cursor: &mut Cursor, batch: &[OutboxEntry], limit: usize) {
        let bytes = |entry: &OutboxEntry| entry.message.as_ref().map_or(0, |message| message.payload.len());
        if batch.iter().map(bytes).sum::<usize>() > BYTES_MOST {
            return;
        }
        let mut open = cursor.groups.iter().filter(|group| group.window.is_some());
        let (Some(group), None) = (open.next(), open.next()) else { return };
        let Some(stretch) = group.stretch_beyond(batch, limit) else { return };
        let (database, life, reading) = (self.clone(), cursor.life, stretch.clone());
        let reading = tokio::spawn(async move { database.walk(&reading, life).await });
        cursor.ahead = ReadAhead(Some((stretch, reading)));
    }
}

impl Group {
    /// The ids from `first` to `last`, if they lie close enough together to be walked along.
    pub(crate) fn stretch_of(&self, known: &[RowId]) -> Option<Stretch> {
        let (first, last) = (known.first()?, known.last()?);
        (last - first < SPREAD * known.len() as i64).then(|| self.stretch(first - 1, *last, i64::MAX))?
    }

    pub(crate) fn stretch(&self, after: RowId, upto: RowId, at_most: i64) -> Option<Stretch> {
        let window = self.window.as_ref()?;
        let (s1, s2) = (self.s1.as_str().to_owned(), window.s2.as_str().to_owned());
        Some(Stretch { shards: self.shards.clone(), s1, s2, after, upto, at_most })
    }

    /// What comes after `batch`, which is the beginning of what is left of the window.
    fn stretch_beyond(&self, batch: &[OutboxEntry], limit: usize) -> Option<Stretch> {
        let window = self.window.as_ref()?;
        let last = batch.last()?.row;
        let known: Vec<RowId> = self.unsettled().skip_while(|id| *id <= last).take(limit).collect();
        if !known.is_empty() {
            return self.stretch_of(&known);
        }
        let from = window.scanned_to;
        let is_walked = from > RowId::MIN && from < RowId::MAX;
        is_walked.then(|| self.stretch(from, from.saturating_add(span(limit)), limit as i64))?
    }
}
