-- Appends messages to a shard, in order, each unless its id was accepted a while ago.
-- KEYS: the stream, the shard's hash, the recent ids, the older ids.
-- ARGV: the number of shards, the window in milliseconds, the number of messages; then of each message its id, how many
-- arguments follow, and these: its fields and values.
-- Answers with the entry id of each message. What fails, fails before the first write.
local shard = redis.call('HMGET', KEYS[2], 'partitions', 'turned')
if shard[1] ~= ARGV[1] then
    return redis.error_reply('STALETOPIC ' .. (shard[1] or 'none'))
end
local window, count = tonumber(ARGV[2]), tonumber(ARGV[3])
local ids, first, last = {}, {}, {}
local at = 4
for i = 1, count do
    ids[i], first[i], last[i] = ARGV[at], at + 2, at + 1 + tonumber(ARGV[at + 1])
    at = last[i] + 1
end

local known, turned = {}, tonumber(shard[2] or '0')
if window > 0 then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    if now < turned or now - turned >= window then
        redis.call('HSET', KEYS[2], 'turned', now)
        redis.call('UNLINK', KEYS[4])
        if now >= turned and now - turned < 2 * window then
            if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('RENAME', KEYS[3], KEYS[4]) end
        else
            redis.call('UNLINK', KEYS[3])
        end
        turned = now
    end
    for _, key in ipairs({KEYS[3], KEYS[4]}) do
        for i, place in ipairs(redis.call('HMGET', key, unpack(ids))) do
            if place then known[ids[i]] = place end
        end
    end
end

local answers, fresh = {}, {}
for i = 1, count do
    local id = ids[i]
    local place = window > 0 and known[id]
    if not place then
        place = redis.call('XADD', KEYS[1], '*', unpack(ARGV, first[i], last[i]))
        known[id] = place
        fresh[#fresh + 1] = id
        fresh[#fresh + 1] = place
    end
    answers[i] = place
end

if #fresh == 0 then
    -- Something must be written, so that whoever waits for replicas waits for what was written before.
    redis.call('HSET', KEYS[2], 'turned', turned)
    return answers
end
if window > 0 then
    -- What is in the stream is accepted, even if it cannot be remembered.
    redis.pcall('HSET', KEYS[3], unpack(fresh))
    redis.pcall('PEXPIREAT', KEYS[3], turned + 2 * window)
end
-- With a clock that stands still or goes back, Redis counts on within one millisecond: an offset has room for so many.
local millis, sequence = string.match(fresh[#fresh], '^(%d+)-(%d+)$')
if tonumber(sequence) >= 1048576 then
    redis.pcall('XSETID', KEYS[1], string.format('%.0f-0', tonumber(millis) + 1))
end
return answers
