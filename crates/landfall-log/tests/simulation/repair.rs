//! A repair that loses its power: at every moment of it, with everything that was not synced kept, lost or torn.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use landfall_core::{Broker, Message, Outcome, Publisher, StartAt, TopicName};
use landfall_log::{Log, Options};

use crate::crash::{Crash, Fate};
use crate::disk::ModelDisk;
use crate::journal::Entry;
use crate::random::{Random, seed};
use crate::tree::Tree;
use crate::{runtime, shared_failpoints};

const LOG: &str = "/log";
const MESSAGES: u64 = 40;
const IMAGES_PER_MOMENT: usize = 8;

fn options() -> Options {
    Options { partitions: 1, segment_bytes: 1024, ..Options::default() }
}

fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

/// A closed log with several segments.
async fn stored() -> Tree {
    let disk = ModelDisk::new(Tree::default());
    let log = Log::open_on(Arc::new(disk.clone()), LOG, options()).unwrap();
    for n in 0..MESSAGES {
        let outcomes = log.publish(&[Message::new(topic(), format!("payload {n}"))]).await;
        assert!(matches!(outcomes[..], [Outcome::Accepted(_)]), "{outcomes:?}");
    }
    log.close().await.unwrap();
    disk.tree()
}

/// Damages a batch of the first segment and the header and first batch of the fourth, and takes away the second. Answers
/// with what stands in the damaged files, which must not be lost.
fn damage(tree: &mut Tree) -> Vec<Vec<u8>> {
    let segments: Vec<_> = tree.files().into_iter().filter(|(path, _)| path.ends_with(".segment")).collect();
    assert!(segments.len() > 4);
    tree.file_mut(segments[0].1)[64 + 80] ^= 1;
    tree.file_mut(segments[3].1)[..200].fill(7);
    let damaged = [0, 3].map(|index| tree.file(segments[index].1).unwrap().to_vec());
    let (folder, name) = tree.place(Path::new(&segments[1].0)).unwrap();
    tree.folder_mut(folder).remove(&name);
    damaged.into()
}

fn repair(disk: &ModelDisk) -> usize {
    Log::repair_on(Arc::new(disk.clone()), LOG, None).unwrap().len()
}

/// The offsets that can be read, after making sure that each holds its message.
async fn offsets(disk: &ModelDisk) -> BTreeSet<u64> {
    let log = Log::open_on(Arc::new(disk.clone()), LOG, options()).unwrap();
    let mut reader = log.read(&topic(), StartAt::Beginning).await.unwrap();
    let mut offsets = BTreeSet::new();
    loop {
        let stored = reader.read(100).await.unwrap();
        if stored.is_empty() {
            break;
        }
        for stored in stored {
            let offset = stored.position.offset;
            assert_eq!(stored.message.unwrap().payload, format!("payload {offset}"));
            offsets.insert(offset);
        }
    }
    log.close().await.unwrap();
    offsets
}

/// What was put aside, however often.
fn kept(tree: &Tree) -> BTreeSet<Vec<u8>> {
    let kept =
        tree.files().into_iter().filter(|(path, _)| path.starts_with("/log/damaged/") && !path.ends_with("/new"));
    kept.map(|(_, node)| tree.file(node).unwrap().to_vec()).collect()
}

#[test]
fn a_repair_that_loses_its_power_at_any_moment_is_finished_by_the_next() {
    let _shared = shared_failpoints();
    let (runtime, mut random) = (runtime(), Random::of(seed(), 77));
    let mut base = runtime.block_on(stored());
    let damaged: BTreeSet<_> = damage(&mut base).into_iter().collect();
    let disk = ModelDisk::new(base.clone());
    assert_eq!(repair(&disk), 3);
    let journal = disk.take_journal();
    let expected = runtime.block_on(offsets(&disk));
    assert!((10..MESSAGES as usize).contains(&expected.len()), "{expected:?}");

    let mut crash = Crash::new(base);
    for (position, entry) in journal.iter().enumerate() {
        if let Entry::Done { operation, .. } = entry {
            crash.follow(operation);
        }
        let mut choices = vec![Vec::new(), vec![Fate::Dropped; crash.open().len()]];
        choices.extend((0..IMAGES_PER_MOMENT).map(|_| crash.any_fates(&mut random)));
        for fates in choices {
            let what = format!("LANDFALL_SEED={}, entry {position} ({}), {fates:?}", seed(), entry.outline());
            let disk = ModelDisk::new(crash.image(&fates));
            repair(&disk);
            assert_eq!(runtime.block_on(offsets(&disk)), expected, "{what}");
            assert_eq!(repair(&disk), 0, "{what}");
            assert_eq!(kept(&disk.tree()), damaged, "{what}");
        }
    }
    // A repair that has returned stays done.
    let disk = ModelDisk::new(crash.image(&vec![Fate::Dropped; crash.open().len()]));
    assert_eq!(repair(&disk), 0);
    assert_eq!(kept(&disk.tree()), damaged);
}
