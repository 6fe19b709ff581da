-- shards makes a queue have more shards. Who only looks reads the field.
--
-- KEYS: state
-- ARGV: 1 how many the queue is to have, 2 how many of them have names, as another shard says; 0: none says so, and this is the first
-- Returns {shards, names} as they are now; 0 and 0: the queue does not say so, and has one.
-- Cost: 1 command, at most 3. It may be called twice, because it only makes more of them.
-- Keeps: shards is a multiple of names, and of what it was. names changes only if this shard has forgotten it. A queue that was used before it had
--       shards has its names in the first. A queue that is paused, or has limits of ops.Queue.SetLimits, gets no more shards, because these would
--       not hold there.

-- from time: now, whole
local said, pause, override = unpack(redis.call('HMGET', KEYS.state, 'shards', 'pause', 'override'), 1, 3)
local n, names = string.match(said or '', '^([1-9]%d*) ([1-9]%d*)$')
n, names = whole(n), whole(names)
if not (n and names and n <= 64 and n % names == 0) then n, names = nil, nil end
local want, told, held = tonumber(ARGV[1]), tonumber(ARGV[2]), (whole(pause) or 0) > now or (override or '') ~= ''
if not n and want == 1 then
  n, names = 1, 1
  if redis.call('HLEN', KEYS.state) == 0 then redis.call('HSET', KEYS.state, 'shards', '1 1') end -- who comes second must know that
elseif (want > (n or 1) or want == n and told > names) and want % (n or 1) == 0 and not held then
  local be = math.max(names or 0, told)
  if be == 0 then be = redis.call('HLEN', KEYS.state) > 0 and 1 or want end
  if want % be == 0 then
    n, names = want, be
    redis.call('HSET', KEYS.state, 'shards', string.format('%d %d', n, names))
  end
end
return {string.format('%d', n or 0), string.format('%d', names or 0)}
