-- The leases are read.
-- takes: canceled
-- gives: leases, before, alive, known, left, settled, lists, release
-- from time: us, whole
-- from call: guard

-- A lease that has a count is alive. If no held message was canceled since the fetches, and no lease was parted, all that was not settled of a
-- living lease is held.
local leases = tonumber(ARGV[5])
local before = 5 + 2 * leases -- so many ARGV stand before the tags of the plain acks
local counts, alive, known = {}, true, (whole(canceled) or 0) == tonumber(ARGV[4])
for i = 1, leases do counts[i] = ARGV[5 + i] .. '#' end
local left, settled = leases > 0 and redis.call('HMGET', KEYS.lease, unpack(counts)) or {}, {}
for i = 1, leases do
  left[i], settled[i] = whole(left[i]) or false, 0
  alive = alive and left[i]
end
if not (alive and known) then guard(redis.call('ZCARD', KEYS.pending), redis.call('ZCARD', KEYS.retry)) end

-- lists(lease, tag) says whether the list of a living lease has a tag, if that is not known.
local sets = {}
local function lists(lease, tag)
  if known then return true end
  if not sets[lease] then
    sets[lease] = {}
    for each in string.gmatch(redis.call('HGET', KEYS.lease, ARGV[5 + lease]) or '', '%S+') do sets[lease][each] = true end
  end
  return sets[lease][tag]
end

-- release() takes what was settled off the counts of the leases. A lease of which nothing is left ends.
local function release()
  local over, gone, fewer = {}, {}, {}
  for i = 1, leases do
    local rest = left[i] and left[i] - settled[i]
    if rest and rest <= 0 then
      over[#over + 1] = ARGV[5 + i]
      gone[#gone + 1], gone[#gone + 2] = ARGV[5 + i], counts[i]
    elseif rest and settled[i] > 0 then
      fewer[#fewer + 1], fewer[#fewer + 2] = counts[i], us(rest)
    end
  end
  if over[1] then
    redis.call('ZREM', KEYS.unack, unpack(over))
    redis.call('HDEL', KEYS.lease, unpack(gone))
  end
  if fewer[1] then redis.call('HSET', KEYS.lease, unpack(fewer)) end
end
