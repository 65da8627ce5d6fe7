-- Claims the group's pending entries in order, for the holder of the lease.
-- KEYS: the stream, the lease. ARGV: the token, the group, the consumer, the start id, the limit.
-- Returns 0 if another member holds the lease. Otherwise returns the next start id ('0-0' at the end), the entries, the
-- ids of deleted entries, and the last id that was delivered to the group.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local claimed = redis.call('XAUTOCLAIM', KEYS[1], ARGV[2], ARGV[3], 0, ARGV[4], 'COUNT', ARGV[5])
local delivered = '0-0'
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local fields = {}
    for i = 1, #group, 2 do fields[group[i]] = group[i + 1] end
    if fields['name'] == ARGV[2] then delivered = fields['last-delivered-id'] end
end
return {claimed[1], claimed[2], claimed[3] or {}, delivered}
