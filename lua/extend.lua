-- extend renews the leases of deliveries that are held.
--
-- KEYS: unack, msg, state
-- ARGV: 1 lease us, then tag, id of each delivery
-- Returns a list, one for each delivery: 0 renewed, 1 lost (the message lives on elsewhere),
--       2 gone (the message is nowhere: intercepted, or deleted by somebody else)
-- Cost: 5 commands; O(log unack) for each delivery, and one command more for each that is not held.
--       May come twice or late: it renews only what is held.
-- Keeps: invariant 3 of PROTOCOL.md. The first write is a ZREM: a full server lets the rest pass.

-- include head, settings
local lease = agreed(redis.call('HGET', KEYS.state, 'settings'), {tonumber(ARGV[1])})[1]
local ends = now + lease
ends = us(ends - ends % 2) -- even: a fetch's own is odd
local tags, answer, leases = {}, {}, {}
for i = 2, #ARGV, 2 do tags[#tags + 1] = ARGV[i] end
local held = redis.call('ZMSCORE', KEYS.unack, unpack(tags))
for i = 1, #tags do
  if held[i] then
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
