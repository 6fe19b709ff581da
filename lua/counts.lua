-- counts says how many messages are where.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage
-- Returns {pending, ready, unack, retry, garbage}; what is due counts as ready, wherever it waits.
-- Cost: O(log n). Writes nothing.
local due = redis.call('ZCOUNT', KEYS[1], '-inf', us(now))
local again = redis.call('ZCOUNT', KEYS[4], '-inf', us(now))
return {
  redis.call('ZCARD', KEYS[1]) - due,
  redis.call('LLEN', KEYS[2]) + due + again,
  redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]) - again,
  redis.call('ZCARD', KEYS[5]),
}
