//! The scripts: each is one atomic step by the clock of the server.
//!
//! A record is a hash; `index` orders all records by time, `open` those that are in flight or uncertain. Redis removes
//! an expired hash, but not its members. So `expiry` orders records by the end of their life, and each new one trims
//! a few.

use redis::Script;

/// Reads the clock, and defines how a record is read and returned. An expired answer is removed while it is read.
///
/// KEYS of each script: record, index, open, expiry. ARGV[1] is the id of the record.
const PRELUDE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format('%.0f', number) end
local function stored(keep_answers)
    local v = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'fingerprint', 'parks', 'expires', 'status', 'headers',
        'body_state', 'body', 'claimed')
    if v[8] == 'kept' and now - v[10] >= tonumber(keep_answers) then
        redis.call('HDEL', KEYS[1], 'headers', 'body')
        redis.call('HSET', KEYS[1], 'body_state', 'expired')
        v[7], v[8], v[9] = false, 'expired', false
    end
    return v
end
local function answer(v)
    local left = math.max(0, (v[5] or 0) - now)
    return {'stored', v[1], v[2], v[3], v[4], text(left), v[6], v[7], v[8], v[9]}
end
local function expire_after(life)
    redis.call('PEXPIRE', KEYS[1], text(life))
    redis.call('ZADD', KEYS[4], text(now + life), ARGV[1])
end
local function trim()
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. text(now), 'LIMIT', 0, 4)) do
        for place = 2, 4 do redis.call('ZREM', KEYS[place], id) end
    end
end
";

/// ARGV: id, kind, scope, business type, key, fingerprint, parks, lease, ceiling, keep answers, keep records.
const CLAIM: &str = r"
local v = stored(ARGV[10])
local epoch = now
if v[1] then
    local expired = tonumber(v[5]) <= now
    local free = v[1] == 'released' or (v[1] == 'issued' and not expired)
        or (v[1] == 'in_flight' and expired and v[4] == '0' and v[3] == ARGV[6])
    if not free then return answer(v) end
    epoch = v[2] + 1
elseif ARGV[2] == 'token' then
    return {'missing'}
else
    redis.call('HSET', KEYS[1], 'kind', ARGV[2], 'scope', ARGV[3], 'business_type', ARGV[4], 'key', ARGV[5])
end
redis.call('HSET', KEYS[1], 'state', 'in_flight', 'epoch', text(epoch), 'fingerprint', ARGV[6], 'parks', ARGV[7],
    'claimed', text(now), 'updated', text(now), 'expires', text(now + ARGV[8]), 'ceiling', text(now + ARGV[9]))
redis.call('HDEL', KEYS[1], 'status', 'headers', 'body', 'body_state', 'reason')
trim()
redis.call('ZADD', KEYS[2], text(now), ARGV[1])
if ARGV[2] ~= 'window' then redis.call('ZADD', KEYS[3], text(now), ARGV[1]) end
if ARGV[7] == '1' then
    redis.call('PERSIST', KEYS[1])
    redis.call('ZREM', KEYS[4], ARGV[1])
else
    expire_after(math.max(tonumber(ARGV[11]), tonumber(ARGV[8])))
end
return {'claimed', text(epoch)}
";

/// ARGV: id, epoch, lease.
const RENEW: &str = r"
local v = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'ceiling')
if v[1] ~= 'in_flight' or v[2] ~= ARGV[2] or tonumber(v[3]) <= now then return false end
local expires = math.min(now + ARGV[3], tonumber(v[3]))
redis.call('HSET', KEYS[1], 'expires', text(expires))
return text(math.max(1, expires - now))
";

/// ARGV: id, epoch, outcome, status, headers, body state, body, reason, keep answers, keep records.
const SETTLE: &str = r"
local v = stored(ARGV[9])
if v[2] ~= ARGV[2] or (v[1] ~= 'in_flight' and v[1] ~= 'uncertain') then
    if v[1] then return answer(v) end
    return {'missing'}
end
redis.call('HSET', KEYS[1], 'updated', text(now))
if ARGV[3] == 'unknown' then
    local state = 'in_flight'
    if v[4] == '1' then state = 'uncertain' end
    redis.call('HSET', KEYS[1], 'state', state, 'expires', text(now), 'reason', ARGV[8])
    return {'recorded'}
end
redis.call('HDEL', KEYS[1], 'reason')
if ARGV[3] == 'done' then
    redis.call('HSET', KEYS[1], 'state', 'completed', 'status', ARGV[4], 'headers', ARGV[5], 'body_state', ARGV[6],
        'body', ARGV[7])
else
    redis.call('HSET', KEYS[1], 'state', 'released')
end
redis.call('ZREM', KEYS[3], ARGV[1])
expire_after(tonumber(ARGV[10]))
return {'recorded'}
";

/// ARGV: id, state, status, headers, body state, body, reason, keep records.
const RESOLVE: &str = r"
local v = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'parks', 'expires')
local left = v[1] == 'in_flight' and v[3] == '1' and tonumber(v[4]) <= now
if v[1] ~= 'uncertain' and not left then return 0 end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'epoch', text(v[2] + 1), 'updated', text(now), 'reason', ARGV[7])
if ARGV[2] == 'completed' then
    redis.call('HSET', KEYS[1], 'status', ARGV[3], 'headers', ARGV[4], 'body_state', ARGV[5], 'body', ARGV[6])
end
redis.call('ZREM', KEYS[3], ARGV[1])
expire_after(tonumber(ARGV[8]))
return 1
";

/// ARGV: id, kind, scope, business type, key, life, keep records.
const ISSUE: &str = r"
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
redis.call('HSET', KEYS[1], 'kind', ARGV[2], 'scope', ARGV[3], 'business_type', ARGV[4], 'key', ARGV[5],
    'state', 'issued', 'epoch', text(now), 'parks', '0', 'claimed', text(now), 'updated', text(now),
    'expires', text(now + ARGV[6]), 'ceiling', text(now))
trim()
redis.call('ZADD', KEYS[2], text(now), ARGV[1])
expire_after(math.max(tonumber(ARGV[6]), tonumber(ARGV[7])))
return text(now + ARGV[6])
";

/// Removes the members of a record that is gone. Checks again, because a claim may have written it since.
const FORGET: &str = r"
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for place = 2, 4 do redis.call('ZREM', KEYS[place], ARGV[1]) end
return 1
";

pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) renew: Script,
    pub(super) settle: Script,
    pub(super) resolve: Script,
    pub(super) issue: Script,
    pub(super) forget: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        let script = |body: &str| Script::new(&format!("{PRELUDE}{body}"));
        Self {
            claim: script(CLAIM),
            renew: script(RENEW),
            settle: script(SETTLE),
            resolve: script(RESOLVE),
            issue: script(ISSUE),
            forget: script(FORGET),
        }
    }
}
