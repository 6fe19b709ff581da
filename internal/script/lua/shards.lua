-- shards makes a queue have more shards. Who only looks reads the field.
--
-- KEYS: state
-- ARGV: 1 how many the queue is to have, 2 how many of them are to have names; 0: this is the first shard, which says so
-- Returns {shards, names} as they are now; 0 and 0: the queue does not say so, and has one.
-- Cost: 1 command, at most 3. It may be called twice, because it only makes more of them.
-- Keeps: shards is a multiple of names, and of what it was. names never changes. A queue that was used before it had shards has its names in the
--       first. A queue that is paused, or has limits of ops.Queue.SetLimits, gets no more shards, because these would not hold there.

-- from time: now, whole
local said, pause, override = unpack(redis.call('HMGET', KEYS.state, 'shards', 'pause', 'override'), 1, 3)
local n, names = string.match(said or '', '^(%d+) (%d+)$')
n, names = whole(n), whole(names)
if not (n and names and names > 0 and n <= 64 and n % names == 0) then n, names = nil, nil end
local want, held = tonumber(ARGV[1]), (whole(pause) or 0) > now or (override or '') ~= ''
if not n and want == 1 then
  n, names = 1, 1
  if redis.call('HLEN', KEYS.state) == 0 then redis.call('HSET', KEYS.state, 'shards', '1 1') end -- who comes second must know that
elseif want > (n or 1) and want % (n or 1) == 0 and not held then
  if not n then
    names = tonumber(ARGV[2])
    if names == 0 then names = redis.call('HLEN', KEYS.state) > 0 and 1 or want end
    if want % names > 0 then return {'0', '0'} end
  end
  n = want
  redis.call('HSET', KEYS.state, 'shards', string.format('%d %d', n, names))
end
return {string.format('%d', n or 0), string.format('%d', names or 0)}
