-- Each plain ack is looked at, because its lease is over or was parted, or a held message was canceled.
-- takes: leases, before, known, left, settled, lists, plain, isvoid, acked

-- A message whose lease is over may wait in pending again, because the server forgot the fetch. The ack ends it there. If another
-- consumer holds the message, the ack is void.
local lease, last = 0, 0 -- of the lease, the last ack
for i = 1, plain do
  while i > last do
    lease = lease + 1
    last = last + tonumber(ARGV[5 + leases + lease])
  end
  local id = ARGV[before + i]
  local there = left[lease] and (known or lists(lease, id)) or not left[lease] and redis.call('ZREM', KEYS.pending, id) == 1
  if there and redis.call('HDEL', KEYS.msg, id) == 1 then
    settled[lease] = settled[lease] + 1
  else
    isvoid(i)
    acked = acked - 1
  end
end
