-- What was settled is taken off the counts of the leases. A lease of which nothing is left ends.
-- takes: leases, names, left, settled
-- from time: us

local over, gone, fewer = {}, {}, {}
for i = 1, leases do
  local rest = left[i] and left[i] - settled[i]
  if rest and rest <= 0 then
    over[#over + 1] = ARGV[5 + i]
    gone[#gone + 1], gone[#gone + 2] = ARGV[5 + i], names[i]
  elseif rest and settled[i] > 0 then
    fewer[#fewer + 1], fewer[#fewer + 2] = names[i], us(rest)
  end
end
if over[1] then
  redis.call('ZREM', KEYS.unack, unpack(over))
  redis.call('HDEL', KEYS.lease, unpack(gone))
end
if fewer[1] then redis.call('HSET', KEYS.lease, unpack(fewer)) end
