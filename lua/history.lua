-- history is what was counted in each hour of the last 30 days, and of some before.
--
-- KEYS: 1 history
-- Returns {now, then for each counter: '<hours since 1970>:<what>', how many}
-- Cost: O(hours), at most some 5,000 counters. Writes nothing.
local counted = redis.call('HGETALL', KEYS[1])
table.insert(counted, 1, us(now))
return counted
