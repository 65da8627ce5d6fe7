//! Which producers there are: `producers.json` in the log's folder, replaced as a whole.
//!
//! It carries a checksum, because an epoch that is too low would let a producer back in that was replaced, and an id
//! that is given out twice would make one producer's messages the repeats of another's.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, ProducerName, Result};
use serde::{Deserialize, Serialize};

use super::{Epoch, ProducerId, ProducerState};
use crate::disk::Disk;
use crate::durable::{self, damaged};

/// What `producers.json` holds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    next_id: ProducerId,
    producers: BTreeMap<ProducerName, Registered>,
    checksum: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registered {
    id: ProducerId,
    epoch: Epoch,
}

impl Document {
    fn computed_checksum(&self) -> u32 {
        let next_id = crc32c::crc32c(&self.next_id.to_le_bytes());
        self.producers.iter().fold(next_id, |sum, (name, Registered { id, epoch })| {
            // A name cannot contain the line's end, so no two lists make the same text.
            crc32c::crc32c_append(sum, format!("{name} {id} {epoch}\n").as_bytes())
        })
    }

    /// The document at `path`; an empty one if there is none.
    fn read(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let Some(text) = durable::read(disk, path)? else { return Ok(Self::default()) };
        let document: Self = serde_json::from_slice(&text)
            .map_err(|error| damaged(path, 0, "it does not list producers").with_source(error))?;
        if document.checksum != document.computed_checksum() {
            return Err(damaged(path, 0, "its checksum is wrong"));
        }
        Ok(document)
    }
}

/// The producers of an open log.
#[derive(Debug)]
pub(crate) struct Registry {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    document: Document,
    epochs: HashMap<ProducerId, Epoch>,
}

impl Registry {
    /// Reads which producers the log in `folder` has. A damaged list is an error: it cannot be made again.
    pub(crate) fn open(disk: Arc<dyn Disk>, folder: &Path) -> Result<Self> {
        let path = folder.join("producers.json");
        let document = Document::read(&*disk, &path)?;
        let epochs = document.producers.values().map(|Registered { id, epoch }| (*id, *epoch)).collect();
        Ok(Self { disk, path, document, epochs })
    }

    /// The id of `name`, with a new epoch that fences whoever had the name before. Durable before it returns; after an
    /// error nothing has changed that anybody was told.
    ///
    /// Epochs are counted in 16 bits. After the last one the name gets another id, which begins with sequence 0
    /// everywhere, and the old id is fenced for good.
    pub(crate) fn register(&mut self, name: &ProducerName) -> Result<(ProducerId, Epoch)> {
        let mut document = self.document.clone();
        let before = document.producers.get(name).copied();
        let again = before.and_then(|Registered { id, epoch }| Some(Registered { id, epoch: epoch.checked_add(1)? }));
        let registered = match again {
            Some(registered) => registered,
            None => Registered { id: document.give_id()?, epoch: 0 },
        };
        document.producers.insert(name.clone(), registered);
        document.checksum = document.computed_checksum();
        durable::replace(&*self.disk, &self.path, serde_json::json!(document).to_string().as_bytes())?;
        self.document = document;
        if let Some(before) = before {
            self.epochs.remove(&before.id);
        }
        self.epochs.insert(registered.id, registered.epoch);
        Ok((registered.id, registered.epoch))
    }

    /// An error if a partition knows of producers what this list does not: it was written with one that is missing
    /// now, or newer, and an id or an epoch would be given out a second time.
    pub(crate) fn check(&self, states: &[ProducerState]) -> Result<()> {
        let is_newer = |state: &&ProducerState| {
            let epoch = self.epoch(state.producer);
            state.producer >= self.document.next_id || epoch.is_some_and(|epoch| epoch < state.epoch)
        };
        let Some(ProducerState { producer, epoch, .. }) = states.iter().find(is_newer) else { return Ok(()) };
        let sentence = format!("producer {producer} wrote with epoch {epoch}, of which this list knows nothing");
        Err(damaged(&self.path, 0, sentence))
    }

    /// The newest epoch of a producer. `None` if nobody has that id, or nobody any more: then every epoch is fenced.
    pub(crate) fn epoch(&self, producer: ProducerId) -> Option<Epoch> {
        self.epochs.get(&producer).copied()
    }
}

impl Document {
    fn give_id(&mut self) -> Result<ProducerId> {
        let id = self.next_id;
        // All ones means nobody.
        match id.checked_add(1) {
            Some(next_id) => {
                self.next_id = next_id;
                Ok(id)
            }
            None => Err(Error::new(ErrorKind::Internal, "the log has given out all producer ids there are")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::index::memory_disk::MemoryDisk;

    fn name(text: &str) -> ProducerName {
        ProducerName::new(text).unwrap()
    }

    fn open(memory: &Arc<MemoryDisk>, folder: &Path) -> Result<Registry> {
        Registry::open(memory.clone(), folder)
    }

    #[test]
    fn a_name_keeps_its_id_and_gets_a_higher_epoch_over_restarts() {
        let (memory, folder) = MemoryDisk::new();
        let mut registry = open(&memory, &folder).unwrap();
        assert_eq!(registry.epoch(0), None);
        assert_eq!(registry.register(&name("a")).unwrap(), (0, 0));
        assert_eq!(registry.register(&name("b")).unwrap(), (1, 0));
        assert_eq!(registry.register(&name("a")).unwrap(), (0, 1));
        let mut registry = open(&memory, &folder).unwrap();
        assert_eq!((registry.epoch(0), registry.epoch(1), registry.epoch(2)), (Some(1), Some(0), None));
        assert_eq!(registry.register(&name("a")).unwrap(), (0, 2));
        assert_eq!(registry.register(&name("c")).unwrap(), (2, 0));
        assert_eq!(registry.document.next_id, 3);
    }

    #[test]
    fn after_the_last_epoch_a_name_gets_another_id() {
        let (memory, folder) = MemoryDisk::new();
        let mut registry = open(&memory, &folder).unwrap();
        registry.register(&name("a")).unwrap();
        registry.document.producers.insert(name("a"), Registered { id: 0, epoch: Epoch::MAX - 1 });
        assert_eq!(registry.register(&name("a")).unwrap(), (0, Epoch::MAX));
        assert_eq!(registry.register(&name("a")).unwrap(), (1, 0));
        for registry in [registry, open(&memory, &folder).unwrap()] {
            assert_eq!((registry.epoch(0), registry.epoch(1)), (None, Some(0)));
        }
    }

    #[test]
    fn the_id_that_means_nobody_is_never_given_out() {
        let (memory, folder) = MemoryDisk::new();
        let mut registry = open(&memory, &folder).unwrap();
        registry.document.next_id = ProducerId::MAX - 1;
        assert_eq!(registry.register(&name("a")).unwrap(), (ProducerId::MAX - 1, 0));
        assert_eq!(registry.register(&name("b")).unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(registry.register(&name("a")).unwrap(), (ProducerId::MAX - 1, 1));
    }

    /// A flipped bit may leave the same text in another spelling, but never other producers.
    #[test]
    fn a_damaged_list_is_reported() {
        let (memory, folder) = MemoryDisk::new();
        let mut registry = open(&memory, &folder).unwrap();
        for text in ["a", "b.c", "a"] {
            registry.register(&name(text)).unwrap();
        }
        let path = folder.join("producers.json");
        let good = memory.content(&path);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            memory.put(&path, bad);
            assert_eq!(open(&memory, &folder).unwrap_err().kind(), ErrorKind::Corrupt, "bit {bit}");
        }
        for length in 0..good.len() {
            memory.put(&path, good[..length].to_vec());
            assert_eq!(open(&memory, &folder).unwrap_err().kind(), ErrorKind::Corrupt, "{length} bytes");
        }
    }
}
