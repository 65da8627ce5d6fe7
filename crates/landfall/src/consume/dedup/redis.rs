//! Redis as the dedup cache.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, GroupName, MessageId, Result};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, Client};

use super::cache::DedupCache;

/// Longer than a healthy Redis takes, and short enough to wait for once in a while.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long the cache is bypassed after an error, so that an unavailable Redis does not slow down every batch.
const BYPASS_FOR: Duration = Duration::from_secs(1);

/// Keeps the ids of handled messages in Redis, as keys that expire.
///
/// ```no_run
/// use std::time::Duration;
///
/// use landfall::consume::RedisDedupCache;
///
/// // Connects on first use.
/// let cache = RedisDedupCache::new("redis://127.0.0.1:6379/0", Duration::from_secs(600))?;
/// # drop(cache);
/// # Ok::<_, landfall::Error>(())
/// ```
pub struct RedisDedupCache {
    connection: ConnectionManager,
    keep: Duration,
    bypass_until: Mutex<Option<Instant>>,
}

impl RedisDedupCache {
    /// Connects on first use to a URL of the form `redis://host:port/database`. Ids are kept for `keep`, which should
    /// cover the time within which duplicates usually arrive.
    ///
    /// Fails only if the URL is malformed or `keep` is below a second. While Redis is down the consumer uses the inbox
    /// alone.
    pub fn new(url: &str, keep: Duration) -> Result<Self> {
        if keep < Duration::from_secs(1) {
            return Err(Error::invalid(format!("dedup cache option keep is {keep:?}; it must be at least 1 s")));
        }
        let malformed =
            |error| Error::invalid("the Redis URL is not of the form redis://host:port/database").with_source(error);
        let client = Client::open(url).map_err(malformed)?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_max_delay(Duration::from_millis(10))
            .set_connection_timeout(Some(RESPONSE_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(malformed)?;
        Ok(Self { connection, keep, bypass_until: Mutex::default() })
    }

    async fn call<T>(&self, command: impl Future<Output = redis::RedisResult<T>> + Send) -> Result<T> {
        let unavailable = || Error::new(ErrorKind::Unavailable, "Redis does not answer");
        let is_bypassed = |until: Option<Instant>| until.is_some_and(|until| until > Instant::now());
        if is_bypassed(*self.bypass_until.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Err(unavailable());
        }
        let error = match tokio::time::timeout(RESPONSE_TIMEOUT, command).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => unavailable().with_source(error),
            Err(_) => unavailable(),
        };
        *self.bypass_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + BYPASS_FOR);
        Err(error)
    }
}

fn key(group: &GroupName, id: MessageId) -> String {
    format!("landfall:seen:{group}:{id}")
}

#[async_trait]
impl DedupCache for RedisDedupCache {
    async fn probably_seen(&self, group: &GroupName, ids: &[MessageId]) -> Result<Vec<MessageId>> {
        let keys: Vec<_> = ids.iter().map(|id| key(group, *id)).collect();
        let mut connection = self.connection.clone();
        let found: Vec<Option<u8>> = self.call(async { connection.mget(keys).await }).await?;
        Ok(ids.iter().zip(found).filter(|(_, found)| found.is_some()).map(|(id, _)| *id).collect())
    }

    async fn remember(&self, group: &GroupName, ids: &[MessageId]) -> Result<()> {
        let mut pipeline = redis::pipe();
        for id in ids {
            pipeline.set_ex(key(group, *id), 1_u8, self.keep.as_secs()).ignore();
        }
        let mut connection = self.connection.clone();
        self.call(async { pipeline.query_async::<()>(&mut connection).await }).await
    }
}

impl std::fmt::Debug for RedisDedupCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisDedupCache").field("keep", &self.keep).finish_non_exhaustive()
    }
}
