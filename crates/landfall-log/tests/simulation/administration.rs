//! Crashes at every point of creating, growing, configuring and deleting topics. Before the call returns, the topic has
//! the old or the new state; afterwards it has the new one. The state is never mixed, and the call can be repeated.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, GroupName, Key, Message, Outcome, Publisher, StartAt, TopicName};
use landfall_log::{Log, Options, TopicSettings};
use landfall_testkit::VIOLATION;

use crate::crash::{Crash, Survival};
use crate::disk::{Faults, ModelDisk};
use crate::journal::Entry;
use crate::random::{Random, seed};
use crate::tree::Tree;
use crate::{runtime, shared_failpoints};

const IMAGES_PER_CRASH_POINT: usize = 8;
/// Percentage of the images that are crashed again while they are opened.
const CRASHED_AGAIN_PERCENT: usize = 30;

#[derive(Debug, Clone, Copy)]
enum Call {
    Create,
    Grow,
    Configure,
    Delete,
    /// Deletes the topic, then publishes two messages under the same name, of which the group finishes one.
    DeleteAndRecreate,
}

/// The observable state of the topic: partitions, settings, messages, and the offset at which the group resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TopicState {
    partitions: usize,
    settings: TopicSettings,
    messages: usize,
    next: Option<u64>,
}

fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

fn group() -> GroupName {
    GroupName::new("stock").unwrap()
}

fn week() -> TopicSettings {
    TopicSettings { retention_time: Some(Duration::from_secs(7 * 24 * 3600)), ..TopicSettings::default() }
}

fn open(disk: &ModelDisk) -> Result<Log, String> {
    // Preallocates little, so that images are small.
    let options = Options { partitions: 1, preallocate_bytes: 4096, ..Options::default() };
    Log::open_on(Arc::new(disk.clone()), "/log", options).map_err(|error| error.to_string())
}

async fn publish(log: &Log, count: usize) {
    for n in 0..count {
        let message = Message::new(topic(), format!("payload {n}")).with_key(Key::new("k").unwrap());
        let outcome = log.publish(&[message]).await.remove(0);
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
}

async fn finish(log: &Log, count: usize) {
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    for _ in 0..count {
        subscriber.next().await.unwrap().unwrap().ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
}

impl Call {
    /// The log before the call. Where a topic exists, it has three messages and the group has finished two.
    async fn before(self) -> Tree {
        let disk = ModelDisk::new(Tree::default());
        let log = open(&disk).unwrap();
        if !matches!(self, Self::Create) {
            publish(&log, 3).await;
            finish(&log, 2).await;
        }
        log.close().await.unwrap();
        disk.tree()
    }

    async fn execute(self, log: &Log) -> Result<(), String> {
        let result = match self {
            Self::Create => log.create_topic(&topic(), Some(2), week()).await.map(drop),
            Self::Grow => log.grow_topic(&topic(), 3).await.map(drop),
            Self::Configure => log.configure_topic(&topic(), week()).await.map(drop),
            Self::Delete | Self::DeleteAndRecreate => log.delete_topic(&topic()).await.map(drop),
        };
        result.map_err(|error| error.to_string())
    }

    async fn recreate(self, log: &Log) {
        if matches!(self, Self::DeleteAndRecreate) {
            publish(log, 2).await;
            finish(log, 1).await;
        }
    }

    /// The expected states before and after the call.
    fn states(self) -> [Option<TopicState>; 2] {
        let old = TopicState { partitions: 1, settings: TopicSettings::default(), messages: 3, next: Some(2) };
        let new = match self {
            Self::Create => Some(TopicState { partitions: 2, settings: week(), messages: 0, next: None }),
            Self::Grow => Some(TopicState { partitions: 3, ..old }),
            Self::Configure => Some(TopicState { settings: week(), ..old }),
            Self::Delete => None,
            Self::DeleteAndRecreate => Some(TopicState { messages: 2, next: Some(1), ..old }),
        };
        [(!matches!(self, Self::Create)).then_some(old), new]
    }

    /// Opens the image of a crash and checks it. `has_returned`: the call had returned before the crash.
    async fn check(self, image: Tree, has_returned: bool) -> Result<Vec<Entry>, String> {
        let disk = ModelDisk::new(image);
        let log = open(&disk)?;
        let journal = disk.take_journal();
        let found = inspect(&log).await?;
        let [old, new] = self.states();
        match self {
            // Between its steps any state from no topic to two messages, at most one of them finished, is valid.
            Self::DeleteAndRecreate if !has_returned => {}
            _ if found == new || (found == old && !has_returned) => {}
            _ => return Err(format!("found {found:?}")),
        }
        self.execute(&log).await?;
        if matches!(self, Self::Delete | Self::DeleteAndRecreate) {
            assert_eq!(inspect(&log).await?, None);
            publish(&log, 1).await;
            let expected = TopicState { partitions: 1, settings: TopicSettings::default(), messages: 1, next: Some(0) };
            let found = inspect(&log).await?;
            (found == Some(expected)).then_some(()).ok_or_else(|| format!("found {found:?} after it was recreated"))?;
        } else {
            let found = inspect(&log).await?;
            (found == new).then_some(()).ok_or_else(|| format!("found {found:?} after the call was repeated"))?;
        }
        log.close().await.map_err(|error| error.to_string())?;
        Ok(journal)
    }
}

async fn inspect(log: &Log) -> Result<Option<TopicState>, String> {
    let Ok(described) = log.describe(&topic()) else { return Ok(None) };
    let failed = |error: landfall_core::Error| error.to_string();
    let mut reader = log.read(&topic(), StartAt::Beginning).await.map_err(failed)?;
    let mut messages = 0;
    loop {
        match reader.read(100).await.map_err(failed)?.len() {
            0 => break,
            more => messages += more,
        }
    }
    let mut next = None;
    if messages > 0 {
        let mut subscriber = log.subscribe(&topic(), &group()).await.map_err(failed)?;
        let delivery = tokio::time::timeout(Duration::from_secs(60), subscriber.next()).await;
        next = delivery.map_err(|_| "no delivery arrived")?.map_err(failed)?.map(|delivery| delivery.position.offset);
    }
    Ok(Some(TopicState { partitions: described.partitions.len(), settings: described.settings, messages, next }))
}

/// The images of one crash point: with all unsynced changes, with none, and with some.
fn images(crash: &Crash, random: &mut Random) -> Vec<Tree> {
    let mut survivals = vec![Vec::new(), vec![Survival::Dropped; crash.unsynced().len()]];
    survivals.extend((0..IMAGES_PER_CRASH_POINT).map(|_| crash.random_survivals(random)));
    survivals.iter().map(|survivals| crash.image(survivals)).collect()
}

/// Checks the images of every crash point of `journal`, which starts from `before`. Returns their number.
async fn explore(call: Call, before: Tree, journal: &[Entry], is_finished: bool) -> Result<usize, String> {
    let (mut random, mut count) = (Random::for_part(seed(), call as u64), 0);
    let (mut crash, mut known) = (Crash::new(before), HashSet::new());
    for at in 0..=journal.len() {
        let has_returned = is_finished && at == journal.len();
        let context = |why: String| format!("{call:?} after {at} of {} entries: {why}", journal.len());
        for image in images(&crash, &mut random) {
            if !known.insert((image.fingerprint(), has_returned)) {
                continue;
            }
            count += 1;
            let opening = call.check(image.clone(), has_returned).await.map_err(context)?;
            if is_finished && random.chance(CRASHED_AGAIN_PERCENT) {
                let again = Box::pin(explore(call, image, &opening, false)).await;
                count += again.map_err(|why| context(format!("crashed again: {why}")))?;
            }
        }
        if let Some(Entry::Operation { operation, .. }) = journal.get(at) {
            crash.apply(operation);
        }
    }
    Ok(count)
}

/// Power fails during the call, or while the image of such a crash is opened.
async fn explore_call(call: Call) -> Result<usize, String> {
    let before = call.before().await;
    let disk = ModelDisk::new(before.clone());
    let log = open(&disk)?;
    call.execute(&log).await?;
    call.recreate(&log).await;
    explore(call, before, &disk.take_journal(), true).await
}

/// The process is killed during the call, and power fails while the next process opens the log. The second process has
/// seen changes that the first did not sync.
async fn explore_killed(call: Call) -> Result<usize, String> {
    let (before, mut count) = (call.before().await, 0);
    for steps in 0.. {
        let disk = ModelDisk::new(before.clone());
        let log = open(&disk)?;
        disk.set_faults(Faults { kill_after: Some(steps), ..Faults::default() });
        let is_finished = call.execute(&log).await.is_ok();
        let log = open(&disk.kill())?;
        let recreates = matches!(call, Call::DeleteAndRecreate);
        if recreates {
            call.execute(&log).await?;
            call.recreate(&log).await;
        }
        drop(log);
        count += explore(call, before.clone(), &disk.take_journal(), recreates).await?;
        if is_finished {
            break;
        }
    }
    Ok(count)
}

#[test]
fn crash_never_leaves_a_topic_half_changed() {
    let _shared = shared_failpoints();
    let runtime = runtime();
    for call in [Call::Create, Call::Grow, Call::Configure, Call::Delete, Call::DeleteAndRecreate] {
        let images = runtime.block_on(explore_call(call));
        let images = images.unwrap_or_else(|why| panic!("{VIOLATION} LANDFALL_SEED={}: {why}", seed()));
        assert!(images > 3, "{call:?} had only {images} images");
    }
}

#[test]
fn crash_after_a_kill_never_leaves_a_topic_half_changed() {
    let _shared = shared_failpoints();
    let runtime = runtime();
    for call in [Call::Create, Call::Grow, Call::Configure, Call::Delete, Call::DeleteAndRecreate] {
        let images = runtime.block_on(explore_killed(call));
        let images = images.unwrap_or_else(|why| panic!("{VIOLATION} LANDFALL_SEED={}: {why}", seed()));
        assert!(images > 3, "{call:?} had only {images} images");
    }
}
