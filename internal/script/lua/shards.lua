-- shards settles how many shards a queue has.
--
-- KEYS: state
-- ARGV: 1 how many it is to have, if it is new
-- Returns how many it has.
-- Cost: 1 command, at most 2. A repeat returns the same.
-- Keeps: the number does not change until the queue is deleted. A queue that was used, and does not say how many, has
--       one.

-- from queue: shardsof
local said, used = unpack(redis.call('HMGET', KEYS.state, 'shards', 'in:stored'), 1, 2)
local n = shardsof(said) or used and 1
if n then return n end
redis.call('HSET', KEYS.state, 'shards', ARGV[1])
return tonumber(ARGV[1])
