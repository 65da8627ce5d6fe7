//! Power cuts while a log is opened whose last sync had failed. The last batch may be torn by its first write, and
//! again when recovery rewrites it.

use std::sync::Arc;

use landfall_core::{Broker, Message, Outcome, Publisher, StartAt, TopicName};
use landfall_log::{Log, Options};
use landfall_testkit::VIOLATION;

use crate::crash::{Crash, Survival};
use crate::disk::{Faults, ModelDisk};
use crate::journal::Entry;
use crate::random::{Random, seed};
use crate::tree::Tree;
use crate::{runtime, shared_failpoints};

const LOG: &str = "/log";
const ACCEPTED: usize = 5;
const RUNS: u64 = 3;
const IMAGES_PER_CRASH_POINT: usize = 25;

fn options() -> Options {
    Options { partitions: 1, preallocate_bytes: 16 * 1024, ..Options::default() }
}

fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

fn payload(n: usize, random: &mut Random) -> Vec<u8> {
    (0..200 + random.below(1800)).map(|at| (at % 251 + n) as u8).collect()
}

/// The journal of a disk before and during the second opening of its log.
struct Opened {
    before: Vec<Entry>,
    opening: Vec<Entry>,
    /// The accepted payloads, and last the one whose sync failed.
    payloads: Vec<Vec<u8>>,
}

async fn opened_after_a_failed_sync(random: &mut Random) -> Result<Opened, String> {
    let disk = ModelDisk::new(Tree::default());
    let open =
        |disk: &ModelDisk| Log::open_on(Arc::new(disk.clone()), LOG, options()).map_err(|error| error.to_string());
    let log = open(&disk)?;
    let payloads: Vec<_> = (0..=ACCEPTED).map(|n| payload(n, random)).collect();
    for (n, payload) in payloads.iter().enumerate() {
        if n == ACCEPTED {
            disk.set_faults(Faults { fail_sync_after: Some(0), ..Faults::default() });
        }
        let outcomes = log.publish(&[Message::new(topic(), payload.clone())]).await;
        match &outcomes[..] {
            [Outcome::Accepted(_)] if n < ACCEPTED => {}
            [Outcome::Unknown(_)] if n == ACCEPTED => {}
            _ => return Err(format!("message {n}: {outcomes:?}")),
        }
    }
    let next = disk.kill();
    drop(log);
    let before = disk.take_journal();
    let log = open(&next)?;
    let opening = next.take_journal();
    log.close().await.map_err(|error| error.to_string())?;
    Ok(Opened { before, opening, payloads })
}

/// Opens the log on `image`, optionally after a repair, and checks its content.
async fn check_content(image: Tree, is_repaired: bool, payloads: &[Vec<u8>]) -> Result<(), String> {
    let disk = Arc::new(ModelDisk::new(image));
    if is_repaired {
        let repaired = Log::repair_on(disk.clone(), LOG, None).map_err(|error| error.to_string())?;
        if !repaired.is_empty() {
            return Err(format!("the repair had nothing to do, but did {repaired:?}"));
        }
    }
    let log = Log::open_on(disk, LOG, options()).map_err(|error| error.to_string())?;
    let mut reader = log.read(&topic(), StartAt::Beginning).await.map_err(|error| error.to_string())?;
    let stored = reader.read(100).await.map_err(|error| error.to_string())?;
    let found: Vec<_> = stored.into_iter().filter_map(|stored| stored.message.ok()).collect();
    log.close().await.map_err(|error| error.to_string())?;
    let is_correct =
        found.iter().map(|message| &message.payload[..]).eq(payloads.iter().take(found.len()).map(|p| &p[..]));
    match is_correct && found.len() >= ACCEPTED {
        true => Ok(()),
        false => Err(format!("of {} messages ({ACCEPTED} accepted), {} are stored", payloads.len(), found.len())),
    }
}

/// Crashes at each point of opening, with random survivals of unsynced changes.
pub(crate) fn crash_while_opening(seed: u64, run: u64) -> Result<(), String> {
    let (runtime, mut random) = (runtime(), Random::for_part(seed, run));
    let Opened { before, opening, payloads } = runtime.block_on(opened_after_a_failed_sync(&mut random))?;
    let mut crash = Crash::new(Tree::default());
    let apply = |crash: &mut Crash, entry: &Entry| {
        if let Entry::Operation { operation, .. } = entry {
            crash.apply(operation);
        }
    };
    before.iter().for_each(|entry| apply(&mut crash, entry));
    for (position, entry) in opening.iter().enumerate() {
        apply(&mut crash, entry);
        let mut choices = vec![Vec::new(), vec![Survival::Dropped; crash.unsynced().len()]];
        choices.extend((0..IMAGES_PER_CRASH_POINT).map(|_| crash.random_survivals(&mut random)));
        for (number, survivals) in choices.into_iter().enumerate() {
            let checked = runtime.block_on(check_content(crash.image(&survivals), number % 2 == 1, &payloads));
            checked
                .map_err(|failure| format!("{failure}\n  at entry {position} ({}), {survivals:?}", entry.outline()))?;
        }
    }
    Ok(())
}

#[test]
fn power_cut_while_opening_after_a_failed_sync_is_survived() {
    let _shared = shared_failpoints();
    for run in 0..RUNS {
        let crashed = crash_while_opening(seed(), run);
        crashed.unwrap_or_else(|failure| panic!("{VIOLATION} LANDFALL_SEED={}, run {run}: {failure}", seed()));
    }
}

#[test]
fn log_opens_on_a_full_disk() {
    let _shared = shared_failpoints();
    let (runtime, mut random) = (runtime(), Random::for_part(seed(), 0));
    let disk = ModelDisk::new(Tree::default());
    let payloads: Vec<_> = (0..ACCEPTED).map(|n| payload(n, &mut random)).collect();
    runtime.block_on(async {
        let open = || Log::open_on(Arc::new(disk.clone()), LOG, options()).unwrap();
        let log = open();
        for payload in &payloads {
            let outcomes = log.publish(&[Message::new(topic(), payload.clone())]).await;
            assert!(matches!(outcomes[..], [Outcome::Accepted(_)]), "{outcomes:?}");
        }
        log.close().await.unwrap();
        drop(log);
        let full = Some(disk.tree().file_bytes());
        disk.set_faults(Faults { capacity: full, ..Faults::default() });
        open().close().await.unwrap();
        let left = disk.tree();
        assert!(left.files().iter().all(|(path, _)| !path.ends_with("/new") && !path.ends_with("/tail")));
        check_content(left, false, &payloads).await.unwrap();
    });
}
