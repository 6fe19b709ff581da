-- consumers says who has consumed lately.
--
-- KEYS: 1 consumers
-- Returns {now, then for each: name, '<us when it said so> <its lease us> <what it said>'}; some may be dead by now.
-- Cost: O(consumers). Writes nothing.
local said = redis.call('HGETALL', KEYS[1])
table.insert(said, 1, us(now))
return said
