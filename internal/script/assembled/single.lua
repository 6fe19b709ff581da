-- KEYS: pending, msg, wake, state
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local field = 'call:' .. ARGV[1]
local state = redis.call('HMGET', KEYS[4], field, 'armed', 'in:stored', 'pause', 'shards')
if (state[5] or '1') ~= (ARGV[6] or '1') then return 0 end
if state[4] then
local pause = tonumber(state[4])
if not (pause and pause <= now) then return 0 end
end
local last = state[1] and tonumber(string.sub(state[1], 1, -19))
if state[1] and not (last and last < tonumber(ARGV[2])) then return 0 end
local stored = tonumber(state[3] or '')
if not (stored and stored >= 0 and stored < 1e15 and stored % 1 == 0) then return 0 end
local due, text, envelope
if ARGV[3] ~= '' then
due = now + ARGV[3]
text = string.format('%d', due)
envelope = '\1' .. text .. ARGV[5]
else
envelope = ARGV[5]
text = string.sub(envelope, 2, 17)
due = tonumber(text)
if due < now then
text = string.format('%d', now)
envelope = string.sub(envelope, 1, 1) .. text .. string.sub(envelope, 18)
end
end
local armed = state[2]
local wake = not (armed and #armed == 16 and armed > '1' and armed <= text)
redis.call('ZADD', KEYS[1], text, ARGV[4])
local new = redis.pcall('HSET', KEYS[2], ARGV[4], envelope)
local failed = new
if wake and type(failed) == 'number' then failed = redis.pcall('ZADD', KEYS[3], text, 'w') end
if type(failed) ~= 'number' then
redis.call('ZREM', KEYS[1], ARGV[4])
redis.pcall('HDEL', KEYS[2], ARGV[4])
return failed
end
local record = string.format('%s %016d ', ARGV[2], now)
local count = string.format('%d', stored + new)
if wake then
redis.call('HSET', KEYS[4], field, record, 'in:stored', count, 'armed', text)
else
redis.call('HSET', KEYS[4], field, record, 'in:stored', count)
end
return now
