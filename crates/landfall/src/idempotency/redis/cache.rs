//! Completed records in Redis, in front of a database.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::idempotency::{
    Body, Claim, Epoch, Fingerprint, IdempotencyRecords, Identity, OneTimeTokens, Outcome, RecordFilter, RecordId,
    RecordRow, RecordStats, Resolution, Settled, Snapshot, Terms,
};
use landfall_core::{Error, Result, Timestamp};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, Client};

/// Answers repeats from Redis, and everything else from a database.
///
/// Only the database decides. A completed record never changes, so a cached answer is right; a missing one costs a look
/// at the database. Redis may be flushed, evicted, failed over or gone at any time: then it is bypassed.
#[derive(Clone)]
pub struct CachedRecords {
    records: Arc<dyn OneTimeTokens>,
    connection: ConnectionManager,
    prefix: String,
    keep: Duration,
    bypass_until: Arc<Mutex<Option<Instant>>>,
}

/// Longer than a healthy Redis takes, and short enough to wait for once in a while.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long Redis is bypassed after an error.
const BYPASS_FOR: Duration = Duration::from_secs(1);

impl CachedRecords {
    /// Connects to Redis on first use. Answers are cached for `keep`, which adds to the time that the database keeps
    /// them. Every key begins with `prefix`.
    ///
    /// Fails only if the URL is malformed or `keep` is below a second.
    pub fn new(records: Arc<dyn OneTimeTokens>, url: &str, prefix: &str, keep: Duration) -> Result<Self> {
        if keep < Duration::from_secs(1) {
            return Err(Error::invalid(format!("answers are cached for {keep:?}; it must be at least 1 s")));
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
        let prefix = format!("{prefix}:answer:");
        Ok(Self { records, connection, prefix, keep, bypass_until: Arc::default() })
    }

    /// Runs a command, and returns `None` if Redis is bypassed or does not answer in time.
    async fn ask<T>(&self, command: impl Future<Output = redis::RedisResult<T>> + Send) -> Option<T> {
        let is_bypassed = |until: Option<Instant>| until.is_some_and(|until| until > Instant::now());
        if is_bypassed(*self.bypass_until.lock().unwrap_or_else(PoisonError::into_inner)) {
            return None;
        }
        if let Ok(Ok(reply)) = tokio::time::timeout(RESPONSE_TIMEOUT, command).await {
            return Some(reply);
        }
        *self.bypass_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + BYPASS_FOR);
        None
    }

    async fn cached(&self, identity: &Identity, fingerprint: &Fingerprint) -> Option<Claim> {
        let key = format!("{}{}", self.prefix, identity.id());
        let mut connection = self.connection.clone();
        let found: Option<Vec<u8>> = self.ask(async { connection.get(key).await }).await?;
        let (known, answer) = decode(&found?)?;
        Some(if known == *fingerprint { Claim::Completed(answer) } else { Claim::Mismatch })
    }

    async fn remember(&self, identity: &Identity, fingerprint: &Fingerprint, answer: &Snapshot) {
        let (Some(value), key) = (encode(fingerprint, answer), format!("{}{}", self.prefix, identity.id())) else {
            return;
        };
        let (mut connection, seconds) = (self.connection.clone(), self.keep.as_secs());
        self.ask(async { connection.set_ex::<_, _, ()>(key, value, seconds).await }).await;
    }
}

/// Fingerprint, status, length of the headers, headers, body. `None` for an answer without a body.
fn encode(fingerprint: &Fingerprint, answer: &Snapshot) -> Option<Vec<u8>> {
    let (headers, body) = (serde_json::to_vec(&answer.headers).ok()?, answer.body.kept()?);
    let mut value = fingerprint.to_vec();
    value.extend(answer.status.to_be_bytes());
    value.extend(u32::try_from(headers.len()).ok()?.to_be_bytes());
    value.extend(headers);
    value.extend_from_slice(body);
    Some(value)
}

/// Returns `None` for a value that this build did not write.
fn decode(value: &[u8]) -> Option<(Fingerprint, Snapshot)> {
    let (fingerprint, rest) = value.split_first_chunk::<32>()?;
    let (status, rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (headers, body) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let headers = serde_json::from_slice(headers).ok()?;
    let body = Body::Kept(body.to_vec().into());
    Some((*fingerprint, Snapshot { status: u16::from_be_bytes(*status), headers, body }))
}

#[async_trait]
impl IdempotencyRecords for CachedRecords {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        if let Some(claim) = self.cached(identity, fingerprint).await {
            return Ok(claim);
        }
        let claim = self.records.claim_record(identity, fingerprint, terms).await?;
        // From the database, so that only what is durable is cached.
        if let Claim::Completed(answer) = &claim {
            self.remember(identity, fingerprint, answer).await;
        }
        Ok(claim)
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        self.records.renew_record(identity, epoch, lease).await
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        self.records.settle_record(identity, epoch, outcome).await
    }

    async fn resolve_record(&self, id: RecordId, resolution: &Resolution, actor: &str) -> Result<bool> {
        self.records.resolve_record(id, resolution, actor).await
    }

    async fn find_records(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>> {
        self.records.find_records(filter, limit).await
    }

    async fn record_stats(&self) -> Result<RecordStats> {
        self.records.record_stats().await
    }
}

#[async_trait]
impl OneTimeTokens for CachedRecords {
    async fn issue_token(&self, identity: &Identity, ttl: Duration) -> Result<Timestamp> {
        self.records.issue_token(identity, ttl).await
    }
}

impl std::fmt::Debug for CachedRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedRecords").field("keep", &self.keep).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_decoded_as_it_was_encoded() {
        let answer = Snapshot::new(201, vec![("location".into(), "/ä".into())], vec![0, 255, 10]);
        let value = encode(&[7; 32], &answer).unwrap();
        assert_eq!(decode(&value), Some(([7; 32], answer.clone())));
        assert!((0..value.len() - 3).all(|length| decode(&value[..length]).is_none()), "a torn value was read");
        assert!(encode(&[7; 32], &Snapshot { body: Body::NotKept, ..answer }).is_none());
    }
}
