-- KEYS: unack, lease, msg, state
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local function whole(text)
if not text or not string.find(text, '^%d+$') then return nil end
return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
local CENTURY = 3155760000000000
local function longest(text, asked)
local lease, at = string.match(text or '', '^(%d+) (%d+)$')
lease, at = whole(lease), whole(at)
if lease and at and lease > asked and lease <= CENTURY and math.abs(now - at) <= lease then return lease, text end
return asked, us(asked) .. ' ' .. us(now)
end
local asked, canceled = unpack(redis.call('HMGET', KEYS[4], 'lease', 'canceled'), 1, 2)
local ends = now + (longest(asked, tonumber(ARGV[1])))
local leases, answer, renewed, counts = tonumber(ARGV[2]), {us(whole(canceled) or 0)}, {}, {}
for i = 1, leases do counts[i] = ARGV[2 + i] .. '#' end
local scores = leases > 0 and redis.call('ZMSCORE', KEYS[1], unpack(ARGV, 3, 2 + leases)) or {}
local left = leases > 0 and redis.call('HMGET', KEYS[2], unpack(counts)) or {}
for i = 1, leases do
answer[1 + i] = us(scores[i] and whole(left[i]) or 0)
if answer[1 + i] ~= '0' then
renewed[#renewed + 1], renewed[#renewed + 2] = us(ends - i + 1), ARGV[2 + i]
end
end
for i = 3 + leases, #ARGV do answer[i - 1] = redis.call('HEXISTS', KEYS[3], ARGV[i]) end
redis.call('ZREM', KEYS[1], '')
if renewed[1] then redis.call('ZADD', KEYS[1], unpack(renewed)) end
return answer
