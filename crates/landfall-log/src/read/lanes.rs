//! Reads the partitions of a topic side by side, so that none starves behind another.
//!
//! Files are read on a blocking thread, one round at a time: whoever waits for the round may stop waiting, the round
//! goes on and is picked up by the next call. That makes everything built on it cancel-safe.

use std::collections::VecDeque;
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use crate::storage::cursor::{Cursor, Extents};
use crate::storage::record::Record;

#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// Which lane is next to give a record.
    turn: usize,
    round: Option<oneshot::Receiver<Vec<Fetched>>>,
}

#[derive(Debug)]
struct Lane {
    extents: Arc<dyn Extents>,
    /// `None` while a round is reading it.
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
    /// Adds the partition of `extents`, to be read from `from` on. Partitions are added in order.
    pub(crate) fn add(&mut self, extents: Arc<dyn Extents>, from: u64) {
        let cursor = Some(Cursor::new(Arc::clone(&extents), from));
        self.lanes.push(Lane { extents, cursor, next_offset: from, records: VecDeque::new() });
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// The next record that is in memory, with its partition; each lane in turn.
    pub(crate) fn pop(&mut self) -> Option<(u32, Record)> {
        let count = self.lanes.len();
        let found = (0..count).map(|step| (self.turn + step) % count).find_map(|index| {
            let record = self.lanes[index].records.pop_front()?;
            Some((index, record))
        });
        let (index, record) = found?;
        self.turn = index + 1;
        Some((self.lanes[index].extents.partition(), record))
    }

    /// Lets lanes that ran dry be read while others still have records, and takes in what was read. Never waits.
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let Some(round) = &mut self.round {
            match round.try_recv() {
                Ok(fetched) => {
                    self.take_in(fetched)?;
                }
                Err(oneshot::error::TryRecvError::Empty) => return Ok(()),
                Err(oneshot::error::TryRecvError::Closed) => return self.lost_round(),
            }
        }
        self.start_round();
        Ok(())
    }

    /// Waits until the lanes that have run dry were read; `false` if there was nothing more in any of them.
    pub(crate) async fn fill(&mut self) -> Result<bool> {
        self.start_round();
        let Some(round) = &mut self.round else { return Ok(false) };
        match round.await {
            Ok(fetched) => self.take_in(fetched),
            Err(_) => self.lost_round().map(|()| false),
        }
    }

    /// A round that never came back has panicked, and the places in its lanes went with it.
    fn lost_round(&mut self) -> Result<()> {
        self.round = None;
        for lane in &mut self.lanes {
            lane.cursor.get_or_insert_with(|| Cursor::new(Arc::clone(&lane.extents), lane.next_offset));
        }
        Err(Error::new(ErrorKind::Internal, "reading the log panicked"))
    }

    fn start_round(&mut self) {
        if self.round.is_some() {
            return;
        }
        let is_dry =
            |lane: &Lane| lane.records.is_empty() && lane.extents.end().is_none_or(|end| end > lane.next_offset);
        let dry = self.lanes.iter_mut().enumerate().filter(|(_, lane)| is_dry(lane));
        let mut cursors: Vec<_> = dry.filter_map(|(index, lane)| Some((index, lane.cursor.take()?))).collect();
        if cursors.is_empty() {
            return;
        }
        let (done, round) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let fetch = |(lane, mut cursor): (usize, Cursor)| {
                let records = cursor.fetch();
                Fetched { lane, cursor, records }
            };
            // Nobody is left to take it in if this fails: the reader was dropped.
            let _ = done.send(cursors.drain(..).map(fetch).collect());
        });
        self.round = Some(round);
    }

    /// Puts what was read into its lanes; whether there was anything. The first error is returned, once everything
    /// else is in place; its lane stays where it is and meets the same again.
    fn take_in(&mut self, round: Vec<Fetched>) -> Result<bool> {
        self.round = None;
        let (mut any, mut outcome) = (false, Ok(()));
        for Fetched { lane, cursor, records } in round {
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
