-- extend renews leases, and says which messages are still there.
--
-- KEYS: unack, lease, msg, state
-- ARGV: 1 lease us, 2 how many leases, then their names; then ids of messages that are looked at
-- Returns {canceled, for each lease its count, 0: it is over; for each id 1: the message is there, 0: it is nowhere}
--       canceled: of state (lib/lease.lua). If it is not what the fetch of a lease told, messages of that lease may have been canceled.
--       A count of more than the holder holds: a settlement was forgotten in a failover, or a message was canceled (keep.lua).
--       Each lease has an end of its own, by a microsecond, because held looks through all leases of the same end.
-- Cost: 6 commands, and 1 for each id; O(log unack) for each lease. A call may come twice or late, because it renews only what is in unack.
-- Keeps: invariant 3 of internal/check. The first write is a ZREM: a full server lets the rest pass.

-- from time: now, us, whole
-- from longest: longest
local asked, canceled = unpack(redis.call('HMGET', KEYS.state, 'lease', 'canceled'), 1, 2)
local ends = now + (longest(asked, tonumber(ARGV[1])))
local leases, answer, renewed, counts = tonumber(ARGV[2]), {us(whole(canceled) or 0)}, {}, {}
for i = 1, leases do counts[i] = ARGV[2 + i] .. '#' end
local scores = leases > 0 and redis.call('ZMSCORE', KEYS.unack, unpack(ARGV, 3, 2 + leases)) or {}
local left = leases > 0 and redis.call('HMGET', KEYS.lease, unpack(counts)) or {}
for i = 1, leases do
  answer[1 + i] = us(scores[i] and whole(left[i]) or 0)
  if answer[1 + i] ~= '0' then
    renewed[#renewed + 1], renewed[#renewed + 2] = us(ends - i + 1), ARGV[2 + i]
  end
end
for i = 3 + leases, #ARGV do answer[i - 1] = redis.call('HEXISTS', KEYS.msg, ARGV[i]) end
redis.call('ZREM', KEYS.unack, '')
if renewed[1] then redis.call('ZADD', KEYS.unack, unpack(renewed)) end
return answer
