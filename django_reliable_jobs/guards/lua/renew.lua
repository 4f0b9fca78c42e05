-- Gives a lease that is still held a new end; 'done' ends it as a lease, so that a renewal under way is refused.
-- ARGV: token, done (0 or 1), ttl in ms ('' none), end in ms since 1970 ('' none), ms to remember the token for.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local token, ends, done = unpack(redis.call('HMGET', KEYS[1], 'token', 'ends', 'done'))
if token ~= ARGV[1] or done == '1' or (ends ~= '' and tonumber(ends) <= now) then
    return 'refused'
end
local at = ''
if ARGV[4] ~= '' then
    at = tonumber(ARGV[4])
elseif ARGV[3] ~= '' then
    at = now + tonumber(ARGV[3])
end
redis.call('HSET', KEYS[1], 'ends', at == '' and '' or string.format('%d', at), 'done', ARGV[2])
if at == '' then
    redis.call('PERSIST', KEYS[1])
else
    redis.call('PEXPIREAT', KEYS[1], string.format('%d', at + tonumber(ARGV[5])))
end
return 'renewed'
