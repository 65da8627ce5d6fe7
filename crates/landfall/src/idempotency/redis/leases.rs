//! Leases in Redis, for locks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::adapter::{Lease, LeaseName};
use landfall_core::{Error, Holder, Leases, Result};
use redis::aio::ConnectionManager;
use redis::{FromRedisValue, Script, ScriptInvocation};

use super::{connect, could_not, millis};

/// Leases in Redis (6.2 or newer, not a cluster), for [`Locks`](crate::idempotency::Locks) that save work.
///
/// **For efficiency only.** A lock in Redis keeps most work from overlapping, and promises nothing:
///
/// * a server that is flushed, evicts, or loses its last writes in a crash gives the lock to a second holder;
/// * so does a failover to a replica that lacks the last writes, because replication does not wait;
/// * a holder that was paused past its lease still believes that it holds the lock, as with every lease.
///
/// The fencing token grows in all these cases, as long as the clocks of the servers agree to about the length of a
/// lease. Compare it in the protected write, or use the leases of a database, which forget nothing. Set
/// `maxmemory-policy noeviction`. Each name keeps one small key, because it holds the last token.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use landfall::idempotency::{Locks, RedisLeases};
///
/// // Connects on first use.
/// let locks = Locks::new(Arc::new(RedisLeases::new("redis://127.0.0.1:6379/0", "shop")?));
/// # drop(locks);
/// # Ok::<_, landfall::Error>(())
/// ```
#[derive(Clone)]
pub struct RedisLeases {
    connection: ConnectionManager,
    prefix: String,
    scripts: Arc<Scripts>,
}

/// Reads the clock and a lease. One whose expiry is further away than it lasts was written under another clock.
const PRELUDE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format('%.0f', number) end
local function read(key)
    local v = redis.call('HMGET', key, 'holder', 'epoch', 'expires', 'ttl')
    local left = (tonumber(v[3]) or 0) - now
    return v[1], v[2], v[1] and left > 0 and left <= tonumber(v[4])
end
local function extend(key, ttl)
    redis.call('HSET', key, 'expires', text(now + ttl), 'ttl', ttl)
end
";

/// KEYS: lease, index. ARGV: name, holder, time to live. A new epoch is at least the time, so that it grows after a
/// flush too.
const ACQUIRE: &str = r"
local holder, epoch, live = read(KEYS[1])
if live and holder ~= ARGV[2] then return false end
if not live then
    epoch = text(math.max(now, (tonumber(epoch) or 0) + 1))
    redis.call('HSET', KEYS[1], 'holder', ARGV[2], 'epoch', epoch)
    redis.call('ZADD', KEYS[2], 0, ARGV[1])
end
extend(KEYS[1], ARGV[3])
return epoch
";

/// KEYS: lease. ARGV: holder, epoch, time to live.
const RENEW: &str = r"
local holder, epoch = read(KEYS[1])
if holder ~= ARGV[1] or epoch ~= ARGV[2] then return 0 end
extend(KEYS[1], ARGV[3])
return 1
";

/// KEYS: lease. ARGV: holder, epoch. The epoch stays.
const RELEASE: &str = r"
local holder, epoch = read(KEYS[1])
if holder ~= ARGV[1] or epoch ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], 'holder', 'expires', 'ttl')
";

/// KEYS: index. ARGV: the key of a lease without its name, the prefix of names. Returns name, holder and whether it is
/// live, of each lease that has a holder.
const LIST: &str = r"
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], '[' .. ARGV[2], '(' .. ARGV[2] .. '\255')) do
    local holder, _, live = read(ARGV[1] .. name)
    if holder then found[#found + 1] = {name, holder, live and '1' or '0'} end
end
return found
";

struct Scripts {
    acquire: Script,
    renew: Script,
    release: Script,
    list: Script,
}

impl RedisLeases {
    /// Connects on first use to a URL of the form `redis://host:port/database`. Every key begins with `prefix`.
    pub fn new(url: &str, prefix: &str) -> Result<Self> {
        let script = |body: &str| Script::new(&format!("{PRELUDE}{body}"));
        let scripts =
            Scripts { acquire: script(ACQUIRE), renew: script(RENEW), release: script(RELEASE), list: script(LIST) };
        Ok(Self { connection: connect(url)?, prefix: format!("{prefix}:lease:"), scripts: Arc::new(scripts) })
    }

    fn lease(&self, name: &LeaseName) -> String {
        format!("{}{}", self.prefix, name.0)
    }

    fn index(&self) -> String {
        // Not the key of any lease: no name is empty.
        self.prefix.clone()
    }

    async fn invoke<T: FromRedisValue>(&self, doing: &'static str, call: &ScriptInvocation<'_>) -> Result<T> {
        call.invoke_async(&mut self.connection.clone()).await.map_err(could_not(doing))
    }

    /// Returns name, holder and liveness of each lease under `prefix` that has a holder, by name.
    async fn list(&self, prefix: &str) -> Result<Vec<(String, String, String)>> {
        let mut call = self.scripts.list.prepare_invoke();
        call.key(self.index()).arg(&self.prefix).arg(prefix);
        self.invoke("list leases", &call).await
    }
}

#[async_trait]
impl Leases for RedisLeases {
    async fn acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Lease>> {
        if name.0.is_empty() {
            return Err(Error::invalid("the name of a lease must not be empty"));
        }
        // Before the request, so that the local expiry never is the later one.
        let until = Instant::now() + ttl;
        let mut call = self.scripts.acquire.prepare_invoke();
        call.key(self.lease(name)).key(self.index()).arg(&name.0).arg(&holder.0).arg(millis(ttl));
        let epoch: Option<i64> = self.invoke("acquire a lease", &call).await?;
        Ok(epoch.map(|epoch| Lease { name: name.clone(), holder: holder.clone(), epoch, until }))
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Lease>> {
        let mut renewed = Vec::with_capacity(leases.len());
        for lease in leases {
            let until = Instant::now() + ttl;
            let mut call = self.scripts.renew.prepare_invoke();
            call.key(self.lease(&lease.name)).arg(&lease.holder.0).arg(lease.epoch).arg(millis(ttl));
            if self.invoke::<u8>("renew a lease", &call).await? == 1 {
                renewed.push(Lease { until, ..lease.clone() });
            }
        }
        Ok(renewed)
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        for lease in leases {
            let mut call = self.scripts.release.prepare_invoke();
            call.key(self.lease(&lease.name)).arg(&lease.holder.0).arg(lease.epoch);
            self.invoke::<u8>("release a lease", &call).await?;
        }
        Ok(())
    }

    async fn held(&self, prefix: &str) -> Result<Vec<LeaseName>> {
        let leases = self.list(prefix).await?;
        Ok(leases.into_iter().filter(|(.., live)| live == "1").map(|(name, ..)| LeaseName(name)).collect())
    }

    async fn lapsed(&self, prefix: &str) -> Result<Vec<Holder>> {
        let leases = self.list(prefix).await?;
        let expired = leases.into_iter().filter(|(.., live)| live == "0");
        let mut holders: Vec<String> = expired.map(|(_, holder, _)| holder).collect();
        holders.sort_unstable();
        holders.dedup();
        Ok(holders.into_iter().map(Holder).collect())
    }
}

impl std::fmt::Debug for RedisLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisLeases").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
