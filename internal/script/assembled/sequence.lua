-- KEYS: state, sequence
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local field = 'call:' .. ARGV[1]
local STALE = 'DQSTALE a later call of this caller was carried out'
local function recall(saved)
if not saved then return nil end
local n, at, reply = string.match(saved, '^(%d+) (%d+) (.*)$')
if not n then return nil end
local call, last = tonumber(ARGV[2]), tonumber(n)
if last < call then return nil, at, n end
if last > call then return false end
return reply, at, n
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local marks = {}
local function remember(reply)
redis.call('HSET', KEYS[1], field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply, unpack(marks))
end
local NOQUEUE = {err = 'DQNOQUEUE the queue has no key'}
local function lastof(name)
local last = redis.call('HGET', KEYS[2], name)
return last and #last == 20 and string.match(last, '^%d+$') and last <= '18446744073709551615' and last or nil
end
local what, name = ARGV[3], ARGV[4]
local reply = recall(redis.call('HGET', KEYS[1], field))
if reply then return {reply} elseif reply == false then return {err = STALE} end
if what == 'drop' then
reply = us(redis.call('HDEL', KEYS[2], name))
if reply == '0' and redis.call('HLEN', KEYS[1]) == 0 then return NOQUEUE end
else
reply = lastof(name) or ''
if reply < ARGV[5] and reply >= ARGV[6] then redis.call('HSET', KEYS[2], name, ARGV[5]) end
end
remember(reply)
return {reply}
