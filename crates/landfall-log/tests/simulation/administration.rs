//! Crashes at every moment of creating, growing, configuring and deleting topics: before the answer the old state or the
//! new one is found, after it the new one, never a mixture, and the call can be repeated.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, GroupName, Key, Message, Outcome, Publisher, StartAt, TopicName};
use landfall_log::{Log, Options, TopicSettings};

use crate::crash::{Crash, Fate};
use crate::disk::{Faults, ModelDisk};
use crate::journal::Entry;
use crate::random::{Random, seed};
use crate::tree::Tree;
use crate::{runtime, shared_failpoints};

const IMAGES_PER_MOMENT: usize = 8;
/// So many percent of the images are crashed again while they are opened.
const CRASHED_AGAIN: usize = 30;

#[derive(Debug, Clone, Copy)]
enum Call {
    Create,
    Grow,
    Configure,
    Delete,
    /// And then two messages under the same name, of which the group finishes one.
    DeleteAndBeginAnew,
}

/// What there is to know of the topic: partitions, settings, messages, and the offset at which the group goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
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
    // With little room ahead, so that images are small.
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
    /// A log before the call: with three messages of which the group has finished two, wherever there is a topic.
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

    async fn make(self, log: &Log) -> Result<(), String> {
        let made = match self {
            Self::Create => log.create_topic(&topic(), Some(2), week()).await.map(drop),
            Self::Grow => log.grow_topic(&topic(), 3).await.map(drop),
            Self::Configure => log.configure_topic(&topic(), week()).await.map(drop),
            Self::Delete | Self::DeleteAndBeginAnew => log.delete_topic(&topic()).await.map(drop),
        };
        made.map_err(|error| error.to_string())
    }

    async fn begin_anew(self, log: &Log) {
        if matches!(self, Self::DeleteAndBeginAnew) {
            publish(log, 2).await;
            finish(log, 1).await;
        }
    }

    /// What must be found before the call, and after it.
    fn states(self) -> [Option<Found>; 2] {
        let old = Found { partitions: 1, settings: TopicSettings::default(), messages: 3, next: Some(2) };
        let new = match self {
            Self::Create => Some(Found { partitions: 2, settings: week(), messages: 0, next: None }),
            Self::Grow => Some(Found { partitions: 3, ..old }),
            Self::Configure => Some(Found { settings: week(), ..old }),
            Self::Delete => None,
            Self::DeleteAndBeginAnew => Some(Found { messages: 2, next: Some(1), ..old }),
        };
        [(!matches!(self, Self::Create)).then_some(old), new]
    }

    /// Opens what a crash left and checks it. `is_answered`: the caller was told that it is done.
    async fn check(self, image: Tree, is_answered: bool) -> Result<Vec<Entry>, String> {
        let disk = ModelDisk::new(image);
        let log = open(&disk)?;
        let journal = disk.take_journal();
        let found = look(&log).await?;
        let [old, new] = self.states();
        match self {
            // Between its steps there is everything from nothing to two messages, of which at most one is finished.
            Self::DeleteAndBeginAnew if !is_answered => {}
            _ if found == new || (found == old && !is_answered) => {}
            _ => return Err(format!("found {found:?}")),
        }
        self.make(&log).await?;
        if matches!(self, Self::Delete | Self::DeleteAndBeginAnew) {
            assert_eq!(look(&log).await?, None);
            publish(&log, 1).await;
            let expected = Found { partitions: 1, settings: TopicSettings::default(), messages: 1, next: Some(0) };
            let found = look(&log).await?;
            (found == Some(expected)).then_some(()).ok_or_else(|| format!("found {found:?} after it began anew"))?;
        } else {
            let found = look(&log).await?;
            (found == new).then_some(()).ok_or_else(|| format!("found {found:?} after the call was repeated"))?;
        }
        log.close().await.map_err(|error| error.to_string())?;
        Ok(journal)
    }
}

async fn look(log: &Log) -> Result<Option<Found>, String> {
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
        next = delivery.map_err(|_| "no delivery came")?.map_err(failed)?.map(|delivery| delivery.position.offset);
    }
    Ok(Some(Found { partitions: described.partitions.len(), settings: described.settings, messages, next }))
}

/// The images of one moment: with everything kept, with nothing, and with some of it.
fn images(crash: &Crash, random: &mut Random) -> Vec<Tree> {
    let mut fates = vec![Vec::new(), vec![Fate::Dropped; crash.open().len()]];
    fates.extend((0..IMAGES_PER_MOMENT).map(|_| crash.any_fates(random)));
    fates.iter().map(|fates| crash.image(fates)).collect()
}

/// Checks the images of every moment of `journal`, which began with `before`. Answers with how many those were.
async fn explore(call: Call, before: Tree, journal: &[Entry], is_finished: bool) -> Result<usize, String> {
    let (mut random, mut count) = (Random::of(seed(), call as u64), 0);
    let (mut crash, mut known) = (Crash::new(before), HashSet::new());
    for at in 0..=journal.len() {
        let is_answered = is_finished && at == journal.len();
        let told = |why: String| format!("{call:?} after {at} of {} entries: {why}", journal.len());
        for image in images(&crash, &mut random) {
            if !known.insert((image.fingerprint(), is_answered)) {
                continue;
            }
            count += 1;
            let opening = call.check(image.clone(), is_answered).await.map_err(told)?;
            if is_finished && random.chance(CRASHED_AGAIN) {
                let again = Box::pin(explore(call, image, &opening, false)).await;
                count += again.map_err(|why| told(format!("crashed again: {why}")))?;
            }
        }
        if let Some(Entry::Done { operation, .. }) = journal.get(at) {
            crash.follow(operation);
        }
    }
    Ok(count)
}

/// The power fails at some moment of the call, or of opening what such a crash left.
async fn explore_call(call: Call) -> Result<usize, String> {
    let before = call.before().await;
    let disk = ModelDisk::new(before.clone());
    let log = open(&disk)?;
    call.make(&log).await?;
    call.begin_anew(&log).await;
    explore(call, before, &disk.take_journal(), true).await
}

/// The process is killed at some moment of the call, and the power fails while the next one opens the log: what the
/// first did not sync the second has seen all the same.
async fn explore_killed(call: Call) -> Result<usize, String> {
    let (before, mut count) = (call.before().await, 0);
    for steps in 0.. {
        let disk = ModelDisk::new(before.clone());
        let log = open(&disk)?;
        disk.set_faults(Faults { kill_after: Some(steps), ..Faults::default() });
        let is_finished = call.make(&log).await.is_ok();
        let log = open(&disk.kill())?;
        let begins_anew = matches!(call, Call::DeleteAndBeginAnew);
        if begins_anew {
            call.make(&log).await?;
            call.begin_anew(&log).await;
        }
        drop(log);
        count += explore(call, before.clone(), &disk.take_journal(), begins_anew).await?;
        if is_finished {
            break;
        }
    }
    Ok(count)
}

#[test]
fn no_crash_leaves_a_topic_half_changed() {
    let _shared = shared_failpoints();
    let runtime = runtime();
    for call in [Call::Create, Call::Grow, Call::Configure, Call::Delete, Call::DeleteAndBeginAnew] {
        let images = runtime.block_on(explore_call(call));
        let images = images.unwrap_or_else(|why| panic!("LANDFALL_SEED={}: {why}", seed()));
        assert!(images > 3, "{call:?} had {images} images only");
    }
}

#[test]
fn no_crash_after_a_kill_leaves_a_topic_half_changed() {
    let _shared = shared_failpoints();
    let runtime = runtime();
    for call in [Call::Create, Call::Grow, Call::Configure, Call::Delete, Call::DeleteAndBeginAnew] {
        let images = runtime.block_on(explore_killed(call));
        let images = images.unwrap_or_else(|why| panic!("LANDFALL_SEED={}: {why}", seed()));
        assert!(images > 3, "{call:?} had {images} images only");
    }
}
