-- Frees a key, if the claim with this token still holds it. The key's last token stays: an acquire with this one or a
-- smaller one that is still on its way is refused.
-- ARGV: token, ms to remember the token for.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local token, ends, done = unpack(redis.call('HMGET', KEYS[1], 'token', 'ends', 'done'))
if token and (token ~= ARGV[1] or done == '1') then
    return 'refused'
end
redis.call('HSET', KEYS[1], 'owner', '', 'token', ARGV[1], 'ends', string.format('%d', now), 'done', '0')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if token and (ends == '' or tonumber(ends) > now) then
    return 'released'
end
return 'refused'
