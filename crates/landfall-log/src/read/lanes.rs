//! Reads the partitions of a topic side by side, so that none starves.
//!
//! Files are read on a blocking thread, one fetch at a time. If the caller stops waiting, the fetch continues and the
//! next call picks it up, so everything built on this is cancellation-safe.

use std::collections::VecDeque;
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use crate::storage::cursor::{Cursor, Extents};
use crate::storage::record::Record;

#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// The lane that yields the next record.
    next_lane: usize,
    fetch: Option<oneshot::Receiver<Vec<Fetched>>>,
}

#[derive(Debug)]
struct Lane {
    extents: Arc<dyn Extents>,
    /// `None` while a fetch is reading it.
    cursor: Option<Cursor>,
    /// The offset after the last one that was read.
    next_offset: u64,
    records: VecDeque<Record>,
}

#[derive(Debug)]
struct Fetched {
    lane: usize,
    cursor: Cursor,
    records: Result<Vec<Record>>,
}

impl Lanes {
    /// Adds the partition of `extents`, read from `from` on. Partitions are added in order.
    pub(crate) fn add(&mut self, extents: Arc<dyn Extents>, from: u64) {
        let cursor = Some(Cursor::new(Arc::clone(&extents), from));
        self.lanes.push(Lane { extents, cursor, next_offset: from, records: VecDeque::new() });
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the next record in memory, with its partition; round-robin over the lanes.
    pub(crate) fn pop(&mut self) -> Option<(u32, Record)> {
        let count = self.lanes.len();
        let found = (0..count).map(|step| (self.next_lane + step) % count).find_map(|index| {
            let record = self.lanes[index].records.pop_front()?;
            Some((index, record))
        });
        let (index, record) = found?;
        self.next_lane = index + 1;
        Some((self.lanes[index].extents.partition(), record))
    }

    /// Starts a fetch for empty lanes while others still have records, and takes in a completed one. Never waits.
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let Some(fetch) = &mut self.fetch {
            match fetch.try_recv() {
                Ok(fetched) => {
                    self.store_fetched(fetched)?;
                }
                Err(oneshot::error::TryRecvError::Empty) => return Ok(()),
                Err(oneshot::error::TryRecvError::Closed) => return self.restore_lost_fetch(),
            }
        }
        self.start_fetch();
        Ok(())
    }

    /// Waits until the empty lanes were read; `false` if none of them had more.
    pub(crate) async fn fill(&mut self) -> Result<bool> {
        self.start_fetch();
        let Some(fetch) = &mut self.fetch else { return Ok(false) };
        match fetch.await {
            Ok(fetched) => self.store_fetched(fetched),
            Err(_) => self.restore_lost_fetch().map(|()| false),
        }
    }

    /// Restores the cursors of a fetch that panicked.
    fn restore_lost_fetch(&mut self) -> Result<()> {
        self.fetch = None;
        for lane in &mut self.lanes {
            lane.cursor.get_or_insert_with(|| Cursor::new(Arc::clone(&lane.extents), lane.next_offset));
        }
        Err(Error::new(ErrorKind::Internal, "the thread that reads the log panicked"))
    }

    fn start_fetch(&mut self) {
        if self.fetch.is_some() {
            return;
        }
        let is_dry =
            |lane: &Lane| lane.records.is_empty() && lane.extents.end().is_none_or(|end| end > lane.next_offset);
        let dry = self.lanes.iter_mut().enumerate().filter(|(_, lane)| is_dry(lane));
        let mut cursors: Vec<_> = dry.filter_map(|(index, lane)| Some((index, lane.cursor.take()?))).collect();
        if cursors.is_empty() {
            return;
        }
        let (done, fetch) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let read = |(lane, mut cursor): (usize, Cursor)| {
                let records = cursor.fetch();
                Fetched { lane, cursor, records }
            };
            // A send error means that the reader was dropped.
            let _ = done.send(cursors.drain(..).map(read).collect());
        });
        self.fetch = Some(fetch);
    }

    /// Moves fetched records into their lanes and returns whether there were any. The first error is returned after
    /// everything else is stored; its lane does not advance, so the next fetch meets the same error.
    fn store_fetched(&mut self, fetch: Vec<Fetched>) -> Result<bool> {
        self.fetch = None;
        let (mut any, mut outcome) = (false, Ok(()));
        for Fetched { lane, cursor, records } in fetch {
            let lane = &mut self.lanes[lane];
            lane.cursor = Some(cursor);
            match records {
                Ok(records) => {
                    any |= !records.is_empty();
                    lane.next_offset = records.last().map_or(lane.next_offset, |record| record.offset + 1);
                    lane.records.extend(records);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome.map(|()| any)
    }
}
