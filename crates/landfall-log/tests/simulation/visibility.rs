//! What readers see while the disk is still busy.

use std::time::Duration;

use landfall_core::{Publisher, TopicName};
use tokio::sync::mpsc::unbounded_channel;

use crate::disk::ModelDisk;
use crate::marks::Call;
use crate::messages::{TOPICS, any_messages};
use crate::random::{Random, seed};
use crate::reference::Reference;
use crate::session::{Session, Verdict};
use crate::tree::Tree;
use crate::workload::options;
use crate::{runtime, shared_failpoints};

const CALLS: usize = 40;
/// Reading what is durable does not wait for a disk that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Publishes, and looks at the log whenever the disk is about to sync: nothing of the call may be seen yet.
pub(crate) async fn look_before_each_sync(seed: u64, run: u64) -> Result<(), Verdict> {
    let mut random = Random::of(seed, run);
    let options = options(&mut random);
    let mut session = Session::open(ModelDisk::new(Tree::default()), Reference::new(options), options).await?;
    for topic in TOPICS {
        session.change(Call::Create(TopicName::new(topic)?, options.partitions, options.topic)).await?;
    }
    for _ in 0..CALLS {
        let messages = any_messages(&mut random, &session.disk);
        let (watcher, mut asked) = unbounded_channel();
        session.disk.watch_syncs(Some(watcher));
        // The future of an async trait is boxed and needs no pin of its own.
        let mut publishing = session.log.publish(&messages);
        let outcomes = loop {
            tokio::select! {
                outcomes = &mut publishing => break outcomes,
                Some(go_on) = asked.recv() => {
                    let content = tokio::time::timeout(PATIENCE, session.content()).await;
                    let content = content.map_err(|_| "readers wait until the disk has synced".to_owned())??;
                    session.reference.compare(&content)?;
                    // Nobody waits any more if this fails.
                    let _ = go_on.send(());
                }
            }
        };
        drop(publishing);
        session.disk.watch_syncs(None);
        session.adopt(messages, outcomes)?;
    }
    session.goes_on().await.map(drop)
}

#[test]
fn nobody_sees_a_message_before_it_is_durable() {
    let _shared = shared_failpoints();
    for run in 0..4 {
        let verdict = runtime().block_on(look_before_each_sync(seed(), run)).map_err(String::from);
        verdict.unwrap_or_else(|verdict| panic!("LANDFALL_SEED={}, run {run}: {verdict}", seed()));
    }
}
