-- Part of fetch. lease(tags) gives deliveries a lease end that no other lease has, so that a repeat finds
-- them by it: odd, whereas a renewal is even, not in use, and not that of the fetch before,
-- whose deliveries may all have been intercepted.
local function lease(tags)
  local ends = now + leaseUS
  ends = ends - ends % 2 + 1
  while us(ends) == lent or redis.call('ZCOUNT', KEYS.unack, us(ends), us(ends)) > 0 do ends = ends + 2 end
  leaseEnd = us(ends)
  mark('lent', leaseEnd)
  local leases = {}
  for i = 1, #tags do
    leases[2 * i - 1] = leaseEnd
    leases[2 * i] = tags[i]
  end
  redis.call('ZADD', KEYS.unack, unpack(leases))
end
