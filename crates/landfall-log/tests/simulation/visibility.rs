//! What readers see while the disk is still syncing.

use std::time::Duration;

use landfall_core::{Publisher, TopicName};
use landfall_testkit::VIOLATION;
use tokio::sync::mpsc::unbounded_channel;

use crate::disk::ModelDisk;
use crate::events::Call;
use crate::messages::{TOPICS, any_messages};
use crate::random::{Random, seed};
use crate::reference::Reference;
use crate::session::{Failure, Session};
use crate::tree::Tree;
use crate::workload::options;
use crate::{runtime, shared_failpoints};

const CALLS: usize = 40;
/// Reading durable messages does not wait for the disk.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Publishes, and reads the log before each sync: readers must not see messages of the running call.
pub(crate) async fn read_before_each_sync(seed: u64, run: u64) -> Result<(), Failure> {
    let mut random = Random::for_part(seed, run);
    let options = options(&mut random);
    let mut session = Session::open(ModelDisk::new(Tree::default()), Reference::new(options), options).await?;
    for topic in TOPICS {
        session.change(Call::Create(TopicName::new(topic)?, options.partitions, options.topic)).await?;
    }
    for _ in 0..CALLS {
        let messages = any_messages(&mut random, &session.disk);
        let (watcher, mut requests) = unbounded_channel();
        session.disk.watch_syncs(Some(watcher));
        // The future of an async trait is boxed, so it is `Unpin`.
        let mut publishing = session.log.publish(&messages);
        let outcomes = loop {
            tokio::select! {
                outcomes = &mut publishing => break outcomes,
                Some(resume) = requests.recv() => {
                    let content = tokio::time::timeout(READ_TIMEOUT, session.content()).await;
                    let content = content.map_err(|_| "readers wait until the disk has synced".to_owned())??;
                    session.reference.compare(&content)?;
                    // The disk may have stopped waiting.
                    let _ = resume.send(());
                }
            }
        };
        drop(publishing);
        session.disk.watch_syncs(None);
        session.adopt(messages, outcomes)?;
    }
    session.check_usable().await.map(drop)
}

#[test]
fn readers_see_only_durable_messages() {
    let _shared = shared_failpoints();
    for run in 0..4 {
        let failure = runtime().block_on(read_before_each_sync(seed(), run)).map_err(String::from);
        failure.unwrap_or_else(|failure| panic!("{VIOLATION} LANDFALL_SEED={}, run {run}: {failure}", seed()));
    }
}
