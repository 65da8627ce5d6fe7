-- Appends messages to a shard, in order, each unless its id was accepted a while ago.
-- KEYS: the stream, the shard's hash, the recent ids, the older ids.
-- ARGV: the number of shards, the window in milliseconds, the number of messages; then of each message its id, how many
-- arguments follow, and these: its fields and values.
-- Answers with the entry id of each message. What fails, fails before the first write.
--
-- Beside the recent ids lies what else must be known of them: `since` when they are put there, whether there are `older`
-- ones, and a copy of the number of shards. A single message would feel another call for each.
local window, count = tonumber(ARGV[2]), tonumber(ARGV[3])
local ids, at = {}, 4
for i = 1, count do
    ids[i] = ARGV[at]
    at = at + 2 + tonumber(ARGV[at + 1])
end

local known, partitions, since = {}, nil, nil
if window > 0 then
    local recent = redis.call('HMGET', KEYS[3], 'partitions', 'since', 'older', unpack(ids))
    partitions, since = recent[1], tonumber(recent[2])
    for i = 1, count do
        known[ids[i]] = recent[i + 3] or nil
    end
    if recent[3] ~= '0' then
        local older = redis.call('HMGET', KEYS[4], unpack(ids))
        for i = 1, count do
            known[ids[i]] = known[ids[i]] or older[i] or nil
        end
    end
end
local shards = partitions or redis.call('HGET', KEYS[2], 'partitions')
if shards ~= ARGV[1] then
    return redis.error_reply('STALETOPIC ' .. (shards or 'none'))
end

local function append(pairs, name, value)
    pairs[#pairs + 1] = name
    pairs[#pairs + 1] = value
end

local answers, fresh = {}, {}
at = 4
for i = 1, count do
    local id, last = ids[i], at + 1 + tonumber(ARGV[at + 1])
    local place = known[id]
    if not place then
        place = redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 2, last))
        if window > 0 then known[id] = place end
        append(fresh, id, place)
    end
    answers[i] = place
    at = last + 1
end

local newest = fresh[#fresh]
if not newest then
    -- Something must be written, so that whoever waits for replicas waits for what was written before.
    redis.call('HSET', KEYS[2], 'partitions', ARGV[1])
    return answers
end
-- From here on nothing may fail: what is in the stream is accepted, even if it cannot be remembered.
if window > 0 then
    local now = tonumber(string.match(newest, '^%d+'))
    local begins = not since or now - since >= window
    if begins then
        if since then
            redis.pcall('UNLINK', KEYS[4])
            redis.pcall('RENAME', KEYS[3], KEYS[4])
        end
        append(fresh, 'since', now)
        append(fresh, 'older', redis.pcall('EXISTS', KEYS[4]))
    end
    if begins or not partitions then
        append(fresh, 'partitions', ARGV[1])
    end
    redis.pcall('HSET', KEYS[3], unpack(fresh))
    if begins then
        redis.pcall('PEXPIREAT', KEYS[3], now + 2 * window)
    end
end
-- With a clock that stands still or goes back, Redis counts on within one millisecond: an offset has room for so many.
-- Most ids are too short for that at a glance.
if #newest > 20 then
    local millis, sequence = string.match(newest, '^(%d+)-(%d+)$')
    if tonumber(sequence) >= 1048576 then
        redis.pcall('XSETID', KEYS[1], string.format('%.0f-0', tonumber(millis) + 1))
    end
end
return answers
