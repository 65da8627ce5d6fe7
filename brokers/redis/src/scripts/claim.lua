-- Takes over what the group was given and has not finished, in order, for whoever holds the lease.
-- KEYS: the stream, the lease. ARGV: the token, the group, the consumer, where to begin, how many.
-- Answers with 0 if the lease is somebody else's, or else with where to go on ('0-0' at the end), the entries, the ids
-- of entries that were deleted, and the id up to which the group was given everything.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local claimed = redis.call('XAUTOCLAIM', KEYS[1], ARGV[2], ARGV[3], 0, ARGV[4], 'COUNT', ARGV[5])
local delivered = '0-0'
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local told = {}
    for i = 1, #group, 2 do told[group[i]] = group[i + 1] end
    if told['name'] == ARGV[2] then delivered = told['last-delivered-id'] end
end
return {claimed[1], claimed[2], claimed[3] or {}, delivered}
