-- The leases are read.
-- takes: canceled
-- gives: leases, before, alive, known, names, left, settled, lists
-- from time: whole
-- from call: guard

-- A lease that has a count is alive. If no held message was canceled since the fetches, and no lease was parted, all that was not settled of a
-- living lease is held.
local leases = tonumber(ARGV[5])
local before = 5 + 2 * leases -- so many ARGV stand before the tags of the plain acks
local names, alive, known = {}, true, (whole(canceled) or 0) == tonumber(ARGV[4])
for i = 1, leases do names[i] = ARGV[5 + i] .. '#' end
local left, settled = leases > 0 and redis.call('HMGET', KEYS.lease, unpack(names)) or {}, {}
for i = 1, leases do
  left[i], settled[i] = whole(left[i]) or false, 0
  alive = alive and left[i]
end
if not (alive and known) then guard(redis.call('ZCARD', KEYS.pending), redis.call('ZCARD', KEYS.retry)) end

-- lists(lease, tag) says whether the list of a living lease has a tag. It is made if that is not known.
local lists
if not known then
  local sets = {}
  lists = function(lease, tag)
    if not sets[lease] then
      sets[lease] = {}
      for each in string.gmatch(redis.call('HGET', KEYS.lease, ARGV[5 + lease]) or '', '%S+') do sets[lease][each] = true end
    end
    return sets[lease][tag]
  end
end
