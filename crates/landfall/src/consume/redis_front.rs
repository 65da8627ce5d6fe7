//! Redis in front of the inbox.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, GroupName, MessageId, Result};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, Client};

use super::front::Front;

/// Longer than a healthy Redis ever takes, and short enough to be paid once in a while.
const ANSWERS_WITHIN: Duration = Duration::from_millis(100);
/// One that did not answer is left alone for so long, so that it does not slow down every batch.
const RESTS_FOR: Duration = Duration::from_secs(1);

/// Remembers handled ids in Redis, as keys that expire.
pub struct RedisFront {
    connection: ConnectionManager,
    keep: Duration,
    resting: Mutex<Option<Instant>>,
}

impl RedisFront {
    /// `redis://host:port/database`. Ids are remembered for `keep`: as long as copies usually take to arrive. Nobody is
    /// connected to yet, and a Redis that is down is no error: the inbox does without.
    pub fn new(url: &str, keep: Duration) -> Result<Self> {
        let wrong = |error| Error::invalid("the URL of Redis is not of the form redis://host:port").with_source(error);
        let client = Client::open(url).map_err(wrong)?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_max_delay(Duration::from_millis(10))
            .set_connection_timeout(Some(ANSWERS_WITHIN))
            .set_response_timeout(Some(ANSWERS_WITHIN));
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(wrong)?;
        Ok(Self { connection, keep, resting: Mutex::default() })
    }

    async fn ask<T>(&self, question: impl Future<Output = redis::RedisResult<T>> + Send) -> Result<T> {
        let gone = || Error::new(ErrorKind::Unavailable, "Redis does not answer");
        let resting = |until: Option<Instant>| until.is_some_and(|until| until > Instant::now());
        if resting(*self.resting.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Err(gone());
        }
        let error = match tokio::time::timeout(ANSWERS_WITHIN, question).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => gone().with_source(error),
            Err(_) => gone(),
        };
        *self.resting.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + RESTS_FOR);
        Err(error)
    }
}

fn key(group: &GroupName, id: MessageId) -> String {
    format!("landfall:seen:{group}:{id}")
}

#[async_trait]
impl Front for RedisFront {
    async fn probably_seen(&self, group: &GroupName, ids: &[MessageId]) -> Result<Vec<MessageId>> {
        let keys: Vec<_> = ids.iter().map(|id| key(group, *id)).collect();
        let mut connection = self.connection.clone();
        let found: Vec<Option<u8>> = self.ask(async { connection.mget(keys).await }).await?;
        Ok(ids.iter().zip(found).filter(|(_, found)| found.is_some()).map(|(id, _)| *id).collect())
    }

    async fn remember(&self, group: &GroupName, ids: &[MessageId]) -> Result<()> {
        let mut pipeline = redis::pipe();
        for id in ids {
            pipeline.set_ex(key(group, *id), 1_u8, self.keep.as_secs().max(1)).ignore();
        }
        let mut connection = self.connection.clone();
        self.ask(async { pipeline.query_async::<()>(&mut connection).await }).await
    }
}

impl std::fmt::Debug for RedisFront {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisFront").field("keep", &self.keep).finish_non_exhaustive()
    }
}
