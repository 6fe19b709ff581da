-- Plain acks, if a lease is over or was parted, or a held message was canceled.
-- from time: us

-- ackeach(plain, before, leases, left, settled, lists) looks at each of the plain acks, of which the tags stand behind
-- so many ARGV. lists is nil if all that was not settled of a living lease is held. It returns how many acks counted,
-- and which are void. A message whose lease is over may wait in pending again, because the server forgot the fetch. The
-- ack ends it there. If another consumer holds the message, the ack is void.
local function ackeach(plain, before, leases, left, settled, lists)
  local acked, void = plain, ''
  local lease, last = 0, 0 -- of the lease, the last ack
  for i = 1, plain do
    while i > last do
      lease = lease + 1
      last = last + tonumber(ARGV[5 + leases + lease])
    end
    local id = ARGV[before + i]
    local there
    if left[lease] then there = not lists or lists(lease, id) else there = redis.call('ZREM', KEYS.pending, id) == 1 end
    if there and redis.call('HDEL', KEYS.msg, id) == 1 then
      settled[lease] = settled[lease] + 1
    else
      acked, void = acked - 1, void .. us(i) .. ' '
    end
  end
  return acked, void
end
