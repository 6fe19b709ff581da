-- extend renews leases.
--
-- KEYS: unack, msg, state
-- ARGV: 1 lease us, then tag, id of each delivery
-- Returns for each delivery 0: its lease is renewed, 1: it is not in unack, and its message lives on elsewhere, 2: its message is
--       nowhere (canceled, acked by another consumer, or deleted by another program)
-- Cost: 5 commands; O(log unack) for each delivery, and one command more for each that is not in unack.
--       A call may come twice or late, because it renews only what is in unack.
-- Keeps: invariant 3 of PROTOCOL.md. The first write is a ZREM: a full server lets the rest pass.

-- from time: now, us
-- from settings: agreed
local lease = agreed(redis.call('HGET', KEYS.state, 'settings'), {tonumber(ARGV[1])})[1]
local ends = now + lease
ends = us(ends - ends % 2) -- even: the end that a fetch gives is odd
local tags, answer, leases = {}, {}, {}
for i = 2, #ARGV, 2 do tags[#tags + 1] = ARGV[i] end
local scores = redis.call('ZMSCORE', KEYS.unack, unpack(tags))
for i = 1, #tags do
  if scores[i] then
    answer[i] = 0
    leases[#leases + 1] = ends
    leases[#leases + 1] = tags[i]
  else
    answer[i] = redis.call('HEXISTS', KEYS.msg, ARGV[1 + 2 * i]) == 1 and 1 or 2
  end
end
redis.call('ZREM', KEYS.unack, '')
if leases[1] then redis.call('ZADD', KEYS.unack, unpack(leases)) end
return answer
