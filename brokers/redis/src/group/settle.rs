//! Telling Redis what was finished, many at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{GroupName, Result, TopicName};
use redis::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::shelf::Finished;
use crate::config::Options;
use crate::entry::EntryId;
use crate::error::{self, CallError, Cause};
use crate::link::Link;
use crate::names::Names;

/// What is told at a time.
const MOST: usize = 5_000;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Settling {
    pub(super) options: Arc<Options>,
    pub(super) names: Names,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) link: Arc<Link>,
}

impl Settling {
    /// Until `stop`; what was finished by then is told before this ends, unless Redis cannot be told for too long.
    pub(super) async fn run(self, mut finished: Finished, stop: CancellationToken) -> Result<()> {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                _ = finished.recv_many(&mut batch, MOST) => {}
                () = stop.cancelled() => break,
            }
            self.tell(&mut batch, Some(&stop)).await?;
        }
        finished.close();
        while finished.recv_many(&mut batch, MOST).await > 0 {
            self.tell(&mut batch, None).await?;
        }
        Ok(())
    }

    /// Tries until it worked; once `stop` was given, or without it, no longer than Redis may take to answer.
    async fn tell(&self, batch: &mut Vec<(u32, EntryId)>, stop: Option<&CancellationToken>) -> Result<()> {
        let mut shards: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        batch.drain(..).for_each(|(shard, id)| shards.entry(shard).or_default().push(id.to_string()));
        let mut pipeline = redis::pipe();
        for (shard, ids) in &shards {
            let stream = self.names.stream(&self.topic, *shard);
            pipeline.cmd("XACK").arg(stream).arg(self.group.as_str()).arg(ids);
        }
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.link.ask(&pipeline).await {
                Ok(answers) => match answers.into_iter().find_map(passing) {
                    Some(error) => CallError::AfterSending(error.into()),
                    None => return Ok(()),
                },
                Err(failed) => failed,
            };
            let is_leaving = stop.is_none_or(CancellationToken::is_cancelled);
            if is_leaving && started.elapsed() >= self.options.timeout {
                return Err(error::call_error(error));
            }
            tracing::warn!(topic = %self.topic, group = %self.group, ?error, "what was finished could not be told yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// An error that may pass. A group or stream that is gone has nothing left to be told.
fn passing(answer: Value) -> Option<redis::ServerError> {
    match answer {
        Value::ServerError(error) if error::cause(&error) != Cause::NoGroup => Some(error),
        _ => None,
    }
}
