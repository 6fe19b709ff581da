-- The leases of the deliveries.
-- from time: us, whole

-- leftof(leases) are the fields of lease with the counts of so many leases, the counts, false of a lease that is
-- over, and zeros, to which is added what the call settles; and whether all leases are alive.
local function leftof(leases)
  local names, settled, alive = {}, {}, true
  for i = 1, leases do names[i] = ARGV[5 + i] .. '#' end
  local left = leases > 0 and redis.call('HMGET', KEYS.lease, unpack(names)) or {}
  for i = 1, leases do
    left[i], settled[i] = whole(left[i]) or false, 0
    alive = alive and left[i]
  end
  return names, left, settled, alive
end

-- lists(lease, tag) says whether the list of a living lease has a tag.
local sets = {}
local function lists(lease, tag)
  if not sets[lease] then
    sets[lease] = {}
    for each in string.gmatch(redis.call('HGET', KEYS.lease, ARGV[5 + lease]) or '', '%S+') do sets[lease][each] = true end
  end
  return sets[lease][tag]
end

-- release(leases, names, left, settled) takes what was settled off the counts. A lease of which nothing is left ends.
local function release(leases, names, left, settled)
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
end
