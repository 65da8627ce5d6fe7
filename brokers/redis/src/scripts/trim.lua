-- Removes what every group has finished and what has stayed long enough. KEYS: the stream. ARGV: how many milliseconds
-- that is. Answers with how many entries were removed, and 0 if there is no group: nobody has read anything then.
local groups = redis.call('XINFO', 'GROUPS', KEYS[1])
if #groups == 0 then return 0 end
local time = redis.call('TIME')
local millis, sequence = math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[1]), 0
for _, group in ipairs(groups) do
    local told = {}
    for i = 1, #group, 2 do told[group[i]] = group[i + 1] end
    local pending = redis.call('XPENDING', KEYS[1], told['name'])
    -- The first that must stay: the first one unfinished, or the one after everything that was given out.
    local unfinished = pending[1] > 0
    local m, s = string.match(unfinished and pending[2] or told['last-delivered-id'], '^(%d+)-(%d+)$')
    m, s = tonumber(m), tonumber(s) + (unfinished and 0 or 1)
    if m < millis or (m == millis and s < sequence) then millis, sequence = m, s end
end
return redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f-%.0f', millis, sequence))
