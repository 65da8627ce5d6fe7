//! What the writer's thread owns: the end of every partition, and what it must know to take a message once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use landfall_core::{Error, ErrorCode, Position, Refusal, Result};

use crate::appender::{Appender, Part};
use crate::buffers::Buffers;
use crate::durable::is_full;
use crate::options::Options;
use crate::partition::Partition;
use crate::topic::Topic;

/// What became of one part.
#[derive(Debug, Clone)]
pub(crate) enum Placed {
    /// Its records have the offsets from this one on.
    From(u64),
    /// Where each record is; some were there before.
    Each(Vec<Position>),
    /// Nothing was written.
    Refused(Refusal),
}

#[derive(Debug)]
pub(crate) struct Store {
    options: Options,
    buffers: Arc<Buffers>,
    /// By the partition's id; opened when a partition is first written to.
    appenders: HashMap<u64, Appender>,
    /// The appenders with something that is not synced and shown to readers yet.
    touched: HashSet<u64>,
    /// Partitions that had no room in this group: nothing may overtake what was refused.
    full: HashMap<u64, Refusal>,
}

impl Store {
    pub(crate) fn new(options: Options, buffers: Arc<Buffers>) -> Self {
        Self { options, buffers, appenders: HashMap::new(), touched: HashSet::new(), full: HashMap::new() }
    }

    /// Gives the records of `part` their places. They are written with [`Self::write`]. An error ends the log.
    pub(crate) fn take(&mut self, part: &mut Part) -> Result<Placed> {
        let id = part.partition.id();
        if let Some(refusal) = self.full.get(&id) {
            return Ok(Placed::Refused(refusal.clone()));
        }
        match self.appender(&part.partition)?.push(part) {
            Ok(base_offset) => {
                self.touched.insert(id);
                Ok(Placed::From(base_offset))
            }
            Err(error) if is_full(&error) => {
                let refusal = no_room(&error);
                self.full.insert(id, refusal.clone());
                Ok(Placed::Refused(refusal))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes what was taken.
    pub(crate) fn write(&mut self) -> Result<()> {
        self.full.clear();
        self.touched().try_for_each(Appender::write)
    }

    /// Makes durable what was written, and lets readers see it.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.touched().try_for_each(Appender::sync)?;
        // Only now, so that after an error nothing of it is seen.
        self.touched().for_each(Appender::publish);
        self.touched.clear();
        Ok(())
    }

    /// Gives back the room that was made and not used. Everything must be synced.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.appenders.values_mut().try_for_each(Appender::close)
    }

    /// The topic was deleted.
    pub(crate) fn forget(&mut self, topic: &Topic) {
        for partition in topic.partitions().iter() {
            self.appenders.remove(&partition.id());
        }
    }

    fn touched(&mut self) -> impl Iterator<Item = &mut Appender> {
        let touched = &self.touched;
        self.appenders.iter_mut().filter(|(id, _)| touched.contains(id)).map(|(_, appender)| appender)
    }

    fn appender(&mut self, partition: &Arc<Partition>) -> Result<&mut Appender> {
        match self.appenders.entry(partition.id()) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let (partition, buffers) = (Arc::clone(partition), Arc::clone(&self.buffers));
                Ok(entry.insert(Appender::open(partition, self.options, buffers)?))
            }
        }
    }
}

fn no_room(error: &Error) -> Refusal {
    let reason = format!("there is no room for the message: {error}");
    Refusal { code: ErrorCode::STORAGE_FULL, reason, retriable: true }
}
