//! The registered producers: `producers.json` in the log's folder, replaced atomically.
//!
//! It carries a checksum. An epoch that is too low would admit a fenced producer, and an id assigned twice would make
//! one producer's messages duplicates of another's.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, ProducerName, Result};
use serde::{Deserialize, Serialize};

use super::{Epoch, ProducerId, ProducerState};
use crate::disk::Disk;
use crate::durable::{self, damaged};

/// The content of `producers.json`.
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
            // A name cannot contain a newline, so different lists never produce the same text.
            crc32c::crc32c_append(sum, format!("{name} {id} {epoch}\n").as_bytes())
        })
    }

    /// Reads the document at `path`; an empty one if the file does not exist.
    fn read(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let Some(text) = durable::read(disk, path)? else { return Ok(Self::default()) };
        let document: Self = serde_json::from_slice(&text)
            .map_err(|error| damaged(path, 0, "the file does not list producers").with_source(error))?;
        if document.checksum != document.computed_checksum() {
            return Err(damaged(path, 0, "the checksum is wrong"));
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
    /// Reads the producers of the log in `folder`. A damaged list is an error: it cannot be rebuilt.
    pub(crate) fn open(disk: Arc<dyn Disk>, folder: &Path) -> Result<Self> {
        let path = folder.join("producers.json");
        let document = Document::read(&*disk, &path)?;
        let epochs = document.producers.values().map(|Registered { id, epoch }| (*id, *epoch)).collect();
        Ok(Self { disk, path, document, epochs })
    }

    /// Returns the id of `name` and a new epoch, which fences the previous holder of the name. Durable before it
    /// returns. After an error no issued epoch has changed.
    ///
    /// Epochs have 16 bits. After the last one the name gets a new id, which starts at sequence 0 in every partition,
    /// and the old id is fenced permanently.
    pub(crate) fn register(&mut self, name: &ProducerName) -> Result<(ProducerId, Epoch)> {
        let mut document = self.document.clone();
        let before = document.producers.get(name).copied();
        let again = before.and_then(|Registered { id, epoch }| Some(Registered { id, epoch: epoch.checked_add(1)? }));
        let registered = match again {
            Some(registered) => registered,
            None => Registered { id: document.allocate_id()?, epoch: 0 },
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

    /// Fails if a partition knows a producer or epoch that this list does not. The list was then lost or replaced by
    /// an older one, and an id or an epoch would be issued twice.
    pub(crate) fn check(&self, states: &[ProducerState]) -> Result<()> {
        let is_newer = |state: &&ProducerState| {
            let epoch = self.epoch(state.producer);
            state.producer >= self.document.next_id || epoch.is_some_and(|epoch| epoch < state.epoch)
        };
        let Some(ProducerState { producer, epoch, .. }) = states.iter().find(is_newer) else { return Ok(()) };
        let sentence = format!("producer {producer} wrote with epoch {epoch}, which the list does not contain");
        Err(damaged(&self.path, 0, sentence))
    }

    /// The newest epoch of a producer. `None` if the id is unknown or retired: then every epoch is fenced.
    pub(crate) fn epoch(&self, producer: ProducerId) -> Option<Epoch> {
        self.epochs.get(&producer).copied()
    }
}

impl Document {
    fn allocate_id(&mut self) -> Result<ProducerId> {
        let id = self.next_id;
        // All ones means no producer.
        match id.checked_add(1) {
            Some(next_id) => {
                self.next_id = next_id;
                Ok(id)
            }
            None => Err(Error::new(ErrorKind::Internal, "the log has assigned all producer ids")),
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
    fn name_keeps_its_id_and_gets_a_higher_epoch_over_restarts() {
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
    fn name_gets_a_new_id_after_the_last_epoch() {
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
    fn the_reserved_id_is_never_assigned() {
        let (memory, folder) = MemoryDisk::new();
        let mut registry = open(&memory, &folder).unwrap();
        registry.document.next_id = ProducerId::MAX - 1;
        assert_eq!(registry.register(&name("a")).unwrap(), (ProducerId::MAX - 1, 0));
        assert_eq!(registry.register(&name("b")).unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(registry.register(&name("a")).unwrap(), (ProducerId::MAX - 1, 1));
    }

    /// A flipped bit may yield another spelling of the same text, but never other producers.
    #[test]
    fn damaged_list_is_reported() {
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
