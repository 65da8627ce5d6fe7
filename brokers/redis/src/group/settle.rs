//! Acknowledges finished entries to Redis (`XACK`), many at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{GroupName, Result, TopicName};
use redis::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Options;
use crate::entry::EntryId;
use crate::error::{self, CallError, Cause};
use crate::link::Link;
use crate::names::Names;
use crate::subscriber::Finished;

/// The most entries acknowledged in one call.
const MAX_BATCH: usize = 5_000;
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

pub(super) struct Settling {
    pub(super) options: Arc<Options>,
    pub(super) names: Names,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) link: Arc<Link>,
}

impl Settling {
    /// Runs until `stop`, then acknowledges what was finished by then. Fails if Redis is unavailable for too long
    /// meanwhile.
    pub(super) async fn run(self, mut finished: Finished, stop: CancellationToken) -> Result<()> {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                _ = finished.recv_many(&mut batch, MAX_BATCH) => {}
                () = stop.cancelled() => break,
            }
            self.acknowledge(&mut batch, Some(&stop)).await?;
        }
        finished.close();
        while finished.recv_many(&mut batch, MAX_BATCH).await > 0 {
            self.acknowledge(&mut batch, None).await?;
        }
        Ok(())
    }

    /// Retries until it succeeds; once `stop` is cancelled, or without it, only until the timeout.
    async fn acknowledge(&self, batch: &mut Vec<(u32, EntryId)>, stop: Option<&CancellationToken>) -> Result<()> {
        let mut shards: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        batch.drain(..).for_each(|(shard, id)| shards.entry(shard).or_default().push(id.to_string()));
        let mut pipeline = redis::pipe();
        for (shard, ids) in &shards {
            let stream = self.names.stream(&self.topic, *shard);
            pipeline.cmd("XACK").arg(stream).arg(self.group.as_str()).arg(ids);
        }
        let started = Instant::now();
        let mut backoff = FIRST_BACKOFF;
        loop {
            let error = match self.link.ask(&pipeline).await {
                Ok(answers) => match answers.into_iter().find_map(temporary) {
                    Some(error) => CallError::AfterSending(error.into()),
                    None => return Ok(()),
                },
                Err(failed) => failed,
            };
            let is_leaving = stop.is_none_or(CancellationToken::is_cancelled);
            if is_leaving && started.elapsed() >= self.options.timeout {
                return Err(error::call_error(error));
            }
            tracing::warn!(topic = %self.topic, group = %self.group, ?error, "acknowledgement failed, backing off");
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }
}

/// Returns an error that may be temporary. A group or stream that no longer exists needs no acknowledgement.
fn temporary(answer: Value) -> Option<redis::ServerError> {
    match answer {
        Value::ServerError(error) if error::cause(&error) != Cause::NoGroup => Some(error),
        _ => None,
    }
}
