-- shards says how many shards a queue has, and settles that for a new queue.
--
-- KEYS: state
-- ARGV: 1 how many a new queue is to have; 0: it stays new. 2 'copy': the first shard says so
-- Returns how many it has; 0: it does not say so, and may be new.
-- Cost: 1 command, at most 2. A repeat returns the same.
-- Keeps: what the first shard says does not change until the queue is deleted. A queue that was used, and does not say
--       how many, has one.

-- from queue: shardsof
local said, stored, seen = unpack(redis.call('HMGET', KEYS.state, 'shards', 'in:stored', 'seen'), 1, 3)
local has, n = shardsof(said) or (stored or seen) and 1, tonumber(ARGV[1])
if n == 0 or has and not ARGV[2] then return has or 0 end
redis.call('HSET', KEYS.state, 'shards', ARGV[1])
return n
