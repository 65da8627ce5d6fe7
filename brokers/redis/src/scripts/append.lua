-- Appends messages to a shard in order, except those whose id was accepted within the deduplication window.
-- KEYS: the stream, the shard's hash, the recent ids, the older ids.
-- ARGV: the number of shards, the window in milliseconds, the number of messages; then for each message its id, the
-- number of arguments that follow, and these: its fields and values.
-- Returns the entry id of each message. All errors occur before the first write.
--
-- The hash of recent ids also holds `since`, the start of its window, whether there are `older` ids, and a copy of the
-- number of shards. Separate keys would cost a single message one more call each.
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
    -- Write something, so that a WAIT of the caller covers the original writes too.
    redis.call('HSET', KEYS[2], 'partitions', ARGV[1])
    return answers
end
-- From here on nothing may fail: messages in the stream are accepted, even if their ids cannot be remembered.
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
-- If the clock stops or goes back, Redis keeps counting within one millisecond, but an offset has 21 bits for that.
-- The length check skips most ids cheaply.
if #newest > 20 then
    local millis, sequence = string.match(newest, '^(%d+)-(%d+)$')
    if tonumber(sequence) >= 1048576 then
        redis.pcall('XSETID', KEYS[1], string.format('%.0f-0', tonumber(millis) + 1))
    end
end
return answers
