-- Removes entries that every group has acknowledged and that are older than the retention. KEYS: the stream. ARGV: the
-- retention in milliseconds. Returns the number of removed entries; without a group it removes none.
local groups = redis.call('XINFO', 'GROUPS', KEYS[1])
if #groups == 0 then return 0 end
local time = redis.call('TIME')
local millis, sequence = math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[1]), 0
for _, group in ipairs(groups) do
    local fields = {}
    for i = 1, #group, 2 do fields[group[i]] = group[i + 1] end
    local pending = redis.call('XPENDING', KEYS[1], fields['name'])
    -- The first entry to keep: the first pending one, or the one after the last delivered.
    local unfinished = pending[1] > 0
    local m, s = string.match(unfinished and pending[2] or fields['last-delivered-id'], '^(%d+)-(%d+)$')
    m, s = tonumber(m), tonumber(s) + (unfinished and 0 or 1)
    if m < millis or (m == millis and s < sequence) then millis, sequence = m, s end
end
return redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f-%.0f', millis, sequence))
