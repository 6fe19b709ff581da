-- forecast counts what comes due in spans of time that follow each other.
--
-- KEYS: pending, retry
-- ARGV: 1 us at which the first begins ('0': now), 2 us of each, 3 how many (1 to 500)
-- Returns {now, beginning of the first, then pending and retry: how many are due before it, in each, and after the last}
-- Cost: at most 5 + 2 * ARGV 3 commands of O(log n), and none for what is behind the last message. Writes nothing.

-- include head
local from, step, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if from == 0 then from = now end
local out = {us(now), us(from)}
local function put(nth, all, sooner) -- into each second place of out; sooner(text): how many are due before that
  local before = 0
  for i = 0, n + 1 do
    local upto = all
    if i <= n and before < all then upto = sooner('(' .. us(from + i * step)) end
    out[2 * i + nth] = upto - before
    before = upto
  end
end
put(3, redis.call('ZCARD', KEYS.pending), function(to) return redis.call('ZCOUNT', KEYS.pending, '-inf', to) end)
put(4, redis.call('ZCARD', KEYS.retry), function(to) return redis.call('ZCOUNT', KEYS.retry, '-inf', to) end)
return out
