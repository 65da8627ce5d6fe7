//! Records in Redis: one round trip each for a claim and a settle.

mod cache;
mod leases;
mod rows;
mod scripts;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::idempotency::{
    Body, Claim, Decision, Epoch, Fingerprint, IdempotencyRecords, Identity, OneTimeTokens, Outcome, RecordFilter,
    RecordId, RecordRow, RecordState, RecordStats, Resolution, Settled, Snapshot, StoredRecord, Terms, decide, settled,
};
use landfall_core::{Error, ErrorKind, Result, Timestamp};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Script, ScriptInvocation};

pub use cache::CachedRecords;
pub use leases::RedisLeases;
use scripts::Scripts;

/// Keeps records in Redis (6.2 or newer, not a cluster).
///
/// Not durable: a server that is flushed, fails over or evicts forgets records, and their work may be done again. Use a
/// database where that matters. Set `maxmemory-policy noeviction` and `appendonly yes`. There is no audit trail; a
/// resolution is stored with its record.
///
/// ```no_run
/// use landfall::idempotency::{MemoryOptions, RedisRecords};
///
/// // Connects on first use.
/// let records = RedisRecords::new("redis://127.0.0.1:6379/0", "shop", MemoryOptions::default())?;
/// # drop(records);
/// # Ok::<_, landfall::Error>(())
/// ```
#[derive(Clone)]
pub struct RedisRecords {
    connection: ConnectionManager,
    prefix: String,
    options: super::MemoryOptions,
    scripts: Arc<Scripts>,
}

/// How long a call may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

impl RedisRecords {
    /// Connects on first use to a URL of the form `redis://host:port/database`. Every key begins with `prefix`.
    pub fn new(url: &str, prefix: &str, options: super::MemoryOptions) -> Result<Self> {
        let (connection, prefix) = (connect(url)?, format!("{prefix}:idempotency:"));
        Ok(Self { connection, prefix, options, scripts: Arc::new(Scripts::new()) })
    }

    fn record(&self, id: &str) -> String {
        format!("{}{id}", self.prefix)
    }

    fn index(&self) -> String {
        format!("{}index", self.prefix)
    }

    fn open(&self) -> String {
        format!("{}open", self.prefix)
    }

    fn expiry(&self) -> String {
        format!("{}expiry", self.prefix)
    }

    /// Prepares a call with the keys of a record, and its id as the first argument.
    fn call<'a>(&self, script: &'a Script, id: RecordId) -> ScriptInvocation<'a> {
        let id = id.to_string();
        let mut call = script.prepare_invoke();
        call.key(self.record(&id)).key(self.index()).key(self.open()).key(self.expiry()).arg(id);
        call
    }

    async fn invoke<T: redis::FromRedisValue>(&self, doing: &'static str, call: &ScriptInvocation<'_>) -> Result<T> {
        let mut connection = self.connection.clone();
        call.invoke_async(&mut connection).await.map_err(could_not(doing))
    }
}

/// Prepares a connection, which is made on first use.
fn connect(url: &str) -> Result<ConnectionManager> {
    let malformed =
        |error| Error::invalid("the Redis URL is not of the form redis://host:port/database").with_source(error);
    let client = Client::open(url).map_err(malformed)?;
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(2)
        .set_connection_timeout(Some(RESPONSE_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    ConnectionManager::new_lazy_with_config(client, config).map_err(malformed)
}

/// A call that did not answer may have happened.
fn could_not(doing: &'static str) -> impl FnOnce(redis::RedisError) -> Error {
    move |error| {
        let kind = if error.is_timeout() { ErrorKind::Unknown } else { ErrorKind::Unavailable };
        Error::new(kind, format!("Redis could not {doing}")).with_source(error)
    }
}

fn millis(time: Duration) -> u64 {
    // A hundred years, which a double of a script still counts exactly.
    time.min(Duration::from_secs(100 * 365 * 24 * 3600)).as_nanos().div_ceil(1_000_000) as u64
}

fn headers_json(answer: &Snapshot) -> Result<String> {
    serde_json::to_string(&answer.headers)
        .map_err(|error| Error::invalid("the headers of an answer are not JSON").with_source(error))
}

fn corrupt() -> Error {
    Error::new(ErrorKind::Corrupt, "an idempotency record in Redis contains a value that landfall did not write")
}

/// An array that a script returned.
type Reply = Vec<Option<Vec<u8>>>;

fn text(reply: &Reply, place: usize) -> Result<Option<&str>> {
    let bytes = reply.get(place).and_then(Option::as_deref);
    bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| corrupt())).transpose()
}

fn number(reply: &Reply, place: usize) -> Result<i64> {
    text(reply, place)?.and_then(|text| text.parse().ok()).ok_or_else(corrupt)
}

/// Decodes `word, state, epoch, fingerprint, parks, remaining, status, headers, body state, body`.
fn stored(reply: &Reply) -> Result<Option<StoredRecord>> {
    if text(reply, 0)? != Some("stored") {
        return Ok(None);
    }
    let state: RecordState = text(reply, 1)?.ok_or_else(corrupt)?.parse()?;
    let fingerprint = match reply.get(3) {
        Some(Some(bytes)) => Some(bytes[..].try_into().map_err(|_| corrupt())?),
        _ => None,
    };
    let answer = if state == RecordState::Completed { Some(answer(reply)?) } else { None };
    Ok(Some(StoredRecord {
        state,
        epoch: number(reply, 2)?,
        fingerprint,
        parks: text(reply, 4)? == Some("1"),
        remaining: Duration::from_millis(number(reply, 5)?.unsigned_abs()),
        answer,
    }))
}

fn answer(reply: &Reply) -> Result<Snapshot> {
    let status = u16::try_from(number(reply, 6)?).map_err(|_| corrupt())?;
    let headers = match text(reply, 7)? {
        Some(json) => serde_json::from_str(json).map_err(|error| corrupt().with_source(error))?,
        None => Vec::new(),
    };
    let body = match text(reply, 8)? {
        Some("kept") => Body::Kept(reply.get(9).cloned().flatten().unwrap_or_default().into()),
        Some("not_kept") => Body::NotKept,
        _ => Body::Expired,
    };
    Ok(Snapshot { status, headers, body })
}

/// Adds status, headers, body state and body.
fn push_answer(call: &mut ScriptInvocation<'_>, answer: Option<&Snapshot>) -> Result<()> {
    let body = answer.and_then(|answer| answer.body.kept());
    call.arg(answer.map_or(0, |answer| answer.status))
        .arg(answer.map(headers_json).transpose()?.unwrap_or_default())
        .arg(answer.map_or("", |answer| answer.body.as_str()))
        .arg(body.map_or(&[][..], |body| &body[..]));
    Ok(())
}

#[async_trait]
impl IdempotencyRecords for RedisRecords {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        let mut call = self.call(&self.scripts.claim, identity.id());
        call.arg(identity.kind().as_str()).arg(identity.scope().as_str()).arg(identity.business_type());
        call.arg(identity.key()).arg(&fingerprint[..]).arg(u8::from(terms.on_unknown.is_uncertain()));
        call.arg(millis(terms.lease)).arg(millis(terms.ceiling));
        call.arg(millis(self.options.keep_answers)).arg(millis(self.options.keep_records));
        let reply: Reply = self.invoke("claim an idempotency record", &call).await?;
        if text(&reply, 0)? == Some("claimed") {
            return Ok(Claim::Claimed { epoch: number(&reply, 1)? });
        }
        match stored(&reply)?.map(|stored| decide(&stored, fingerprint)) {
            None => Ok(Claim::NotIssued),
            Some(Decision::Answer(claim)) => Ok(claim),
            // The script would have taken it over, unless it expired within the last millisecond.
            Some(Decision::TakeOver) => Ok(Claim::InFlight { remaining: Duration::from_millis(1) }),
        }
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        let mut call = self.call(&self.scripts.renew, identity.id());
        call.arg(epoch).arg(millis(lease));
        let remaining: Option<u64> = self.invoke("renew an idempotency record", &call).await?;
        Ok(remaining.map(Duration::from_millis))
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        let mut call = self.call(&self.scripts.settle, identity.id());
        let (word, answer, reason) = match outcome {
            Outcome::Done(answer) => ("done", Some(answer), ""),
            Outcome::NothingDone => ("nothing_done", None, ""),
            Outcome::Unknown(reason) => ("unknown", None, reason.as_str()),
        };
        call.arg(epoch).arg(word);
        push_answer(&mut call, answer)?;
        call.arg(reason).arg(millis(self.options.keep_answers)).arg(millis(self.options.keep_records));
        let reply: Reply = self.invoke("settle an idempotency record", &call).await?;
        if text(&reply, 0)? == Some("recorded") {
            return Ok(Settled::Recorded);
        }
        Ok(settled(stored(&reply)?, epoch, outcome))
    }

    async fn resolve_record(&self, id: RecordId, resolution: &Resolution, actor: &str) -> Result<bool> {
        let mut call = self.call(&self.scripts.resolve, id);
        let (state, answer) = match resolution {
            Resolution::Done(answer) => ("completed", Some(answer)),
            Resolution::Rerun => ("released", None),
        };
        call.arg(state);
        push_answer(&mut call, answer)?;
        call.arg(format!("resolved by {actor}")).arg(millis(self.options.keep_records));
        let resolved: u8 = self.invoke("resolve an idempotency record", &call).await?;
        Ok(resolved == 1)
    }

    async fn find_records(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>> {
        self.find(filter, limit).await
    }

    async fn record_stats(&self) -> Result<RecordStats> {
        self.stats().await
    }
}

#[async_trait]
impl OneTimeTokens for RedisRecords {
    async fn issue_token(&self, identity: &Identity, ttl: Duration) -> Result<Timestamp> {
        let mut call = self.call(&self.scripts.issue, identity.id());
        call.arg(identity.kind().as_str()).arg(identity.scope().as_str()).arg(identity.business_type());
        call.arg(identity.key()).arg(millis(ttl)).arg(millis(self.options.keep_records));
        let expires_at: Option<i64> = self.invoke("issue a token", &call).await?;
        let issued = || Error::new(ErrorKind::Conflict, "this token was issued before; generate a new one");
        expires_at.map(Timestamp::from_millis).ok_or_else(issued)
    }
}

impl std::fmt::Debug for RedisRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisRecords").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
