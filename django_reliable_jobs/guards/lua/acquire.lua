-- Claims a key that is free: there is none, or its end has passed by this server's clock.
-- ARGV: owner, token ('' only asks), ttl in ms ('' none), end in ms since 1970 ('' none), ms to remember the token for.
-- Answers: 'granted'; 'taken' (or the end that was asked for has passed); 'free', where no token was given, or one that is
-- not greater than the key's last one. Tokens are below 2^53, so that Lua's numbers hold them.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local owner, token, ends = unpack(redis.call('HMGET', KEYS[1], 'owner', 'token', 'ends'))
if ARGV[4] ~= '' and tonumber(ARGV[4]) <= now then
    return 'taken'
end
if token and owner ~= ARGV[1] and (ends == '' or tonumber(ends) > now) then
    return 'taken'
end
if ARGV[2] == '' or (token and tonumber(token) >= tonumber(ARGV[2])) then
    return 'free'
end
local at = ''
if ARGV[4] ~= '' then
    at = tonumber(ARGV[4])
elseif ARGV[3] ~= '' then
    at = now + tonumber(ARGV[3])
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', ARGV[2], 'ends', at == '' and '' or string.format('%d', at), 'done', '0')
if at == '' then
    redis.call('PERSIST', KEYS[1])
else
    redis.call('PEXPIREAT', KEYS[1], string.format('%d', at + tonumber(ARGV[5])))
end
return 'granted'
