-- Takes or renews a lease. KEYS: the lease. ARGV: the token, for how many milliseconds.
-- Answers with 0 if it is somebody else's, 1 if it was renewed and 2 if it was taken.
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 1
end
if holder then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 2
