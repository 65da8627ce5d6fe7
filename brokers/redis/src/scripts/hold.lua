-- Acquires or renews a lease. KEYS: the lease. ARGV: the token, the lease time in milliseconds.
-- Returns 0 if another member holds it, 1 if it was renewed and 2 if it was acquired.
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 1
end
if holder then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 2
