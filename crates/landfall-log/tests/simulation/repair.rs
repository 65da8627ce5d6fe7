//! Power cuts at every point of a repair, with unsynced changes kept, lost or torn.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use landfall_core::{Broker, Message, Outcome, Publisher, StartAt, TopicName};
use landfall_log::{Log, Options};
use landfall_testkit::VIOLATION;

use crate::crash::{Crash, Survival};
use crate::disk::ModelDisk;
use crate::journal::Entry;
use crate::random::{Random, seed};
use crate::tree::Tree;
use crate::{runtime, shared_failpoints};

const LOG: &str = "/log";
const MESSAGES: u64 = 40;
const IMAGES_PER_CRASH_POINT: usize = 8;

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

/// Damages a batch of the first segment and the header and first batch of the fourth, and removes the second. Returns
/// the bytes of the damaged files, which a repair must preserve.
fn damage(tree: &mut Tree) -> Vec<Vec<u8>> {
    let segments: Vec<_> = tree.files().into_iter().filter(|(path, _)| path.ends_with(".segment")).collect();
    assert!(segments.len() > 4);
    tree.file_mut(segments[0].1)[64 + 80] ^= 1;
    tree.file_mut(segments[3].1)[..200].fill(7);
    let damaged = [0, 3].map(|index| tree.file(segments[index].1).unwrap().to_vec());
    let (folder, name) = tree.dir_entry(Path::new(&segments[1].0)).unwrap();
    tree.folder_mut(folder).remove(&name);
    damaged.into()
}

fn repair(disk: &ModelDisk) -> usize {
    Log::repair_on(Arc::new(disk.clone()), LOG, None).unwrap().len()
}

/// The readable offsets, after checking that each has its message.
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

/// The distinct files that repairs have set aside.
fn allocate(tree: &Tree) -> BTreeSet<Vec<u8>> {
    let kept =
        tree.files().into_iter().filter(|(path, _)| path.starts_with("/log/damaged/") && !path.ends_with("/new"));
    kept.map(|(_, node)| tree.file(node).unwrap().to_vec()).collect()
}

#[test]
fn repair_is_completed_after_a_power_cut_at_any_point() {
    let _shared = shared_failpoints();
    let (runtime, mut random) = (runtime(), Random::for_part(seed(), 77));
    let mut base = runtime.block_on(stored());
    let damaged: BTreeSet<_> = damage(&mut base).into_iter().collect();
    let disk = ModelDisk::new(base.clone());
    assert_eq!(repair(&disk), 3);
    let journal = disk.take_journal();
    let expected = runtime.block_on(offsets(&disk));
    assert!((10..MESSAGES as usize).contains(&expected.len()), "{expected:?}");

    let mut crash = Crash::new(base);
    for (position, entry) in journal.iter().enumerate() {
        if let Entry::Operation { operation, .. } = entry {
            crash.apply(operation);
        }
        let mut choices = vec![Vec::new(), vec![Survival::Dropped; crash.unsynced().len()]];
        choices.extend((0..IMAGES_PER_CRASH_POINT).map(|_| crash.random_survivals(&mut random)));
        for survivals in choices {
            let what =
                format!("{VIOLATION} LANDFALL_SEED={}, entry {position} ({}), {survivals:?}", seed(), entry.outline());
            let disk = ModelDisk::new(crash.image(&survivals));
            repair(&disk);
            assert_eq!(runtime.block_on(offsets(&disk)), expected, "{what}");
            assert_eq!(repair(&disk), 0, "{what}");
            assert_eq!(allocate(&disk.tree()), damaged, "{what}");
        }
    }
    // A repair is durable when it returns.
    let disk = ModelDisk::new(crash.image(&vec![Survival::Dropped; crash.unsynced().len()]));
    assert_eq!(repair(&disk), 0);
    assert_eq!(allocate(&disk.tree()), damaged);
}
