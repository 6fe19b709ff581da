-- forecast counts what comes due in spans of time, one after the other.
--
-- KEYS: pending, retry, waiting
-- ARGV: 1 us at which the first span begins ('0': now), 2 us of each span, 3 how many spans (1 to 500)
-- Returns {now, beginning of the first span, then pairs of pending and retry}: how many are due before the first span, in each span, and
--       after the last. What waits for its turn in a lane counts as pending
-- Cost: at most 6 + 2 * ARGV 3 commands, half as many more if messages wait for their lanes, of O(log n), none for spans behind the last
--       message. Writes nothing.

-- from time: now, us
local from, step, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if from == 0 then from = now end
local out = {us(now), us(from)}
local function fill(nth, all, sooner) -- fills each second place of out; sooner(text): how many are due before that instant
  local before = 0
  for i = 0, n + 1 do
    local upto = all
    if i <= n and before < all then upto = sooner('(' .. us(from + i * step)) end
    out[2 * i + nth] = upto - before
    before = upto
  end
end
local waiting = redis.call('ZCARD', KEYS.waiting)
fill(3, redis.call('ZCARD', KEYS.pending) + waiting, function(to)
  return redis.call('ZCOUNT', KEYS.pending, '-inf', to) + (waiting > 0 and redis.call('ZCOUNT', KEYS.waiting, '-inf', to) or 0)
end)
fill(4, redis.call('ZCARD', KEYS.retry), function(to) return redis.call('ZCOUNT', KEYS.retry, '-inf', to) end)
return out
