-- KEYS: pending, retry, waiting
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local from, step, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if from == 0 then from = now end
local out = {us(now), us(from)}
local function fill(nth, all, sooner)
local before = 0
for i = 0, n + 1 do
local upto = all
if i <= n and before < all then upto = sooner('(' .. us(from + i * step)) end
out[2 * i + nth] = upto - before
before = upto
end
end
local waiting = redis.call('ZCARD', KEYS[3])
fill(3, redis.call('ZCARD', KEYS[1]) + waiting, function(to)
return redis.call('ZCOUNT', KEYS[1], '-inf', to) + (waiting > 0 and redis.call('ZCOUNT', KEYS[3], '-inf', to) or 0)
end)
fill(4, redis.call('ZCARD', KEYS[2]), function(to) return redis.call('ZCOUNT', KEYS[2], '-inf', to) end)
return out
