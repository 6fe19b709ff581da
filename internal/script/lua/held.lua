-- held reads a page of what is held, in order of the ends of the leases, from where the page before ended.
--
-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, done, parts, waiting
-- ARGV: as of list, but 1 and 8 do not matter
-- Returns {now, left, n, the n entries} as list. The score of an entry is the end of its lease.
--       left: at least the number of entries of this page, and more if others follow: about how many are held. If the lease of the last
--       entry of the page before is over or was renewed, the page begins with the first lease of the same end.
-- Cost: O(log n) for each message; 2 for each tag of a lease that is held no more, at most 20,000 tags and
--       leases: a page that finds nothing among these ends the list. Writes nothing.

-- from time: now, us
-- from group: weight
-- from countdown: missingof
-- from record: split
-- from lease: isheld, howmanyheld
local REPLY, LEASES, LOOKS = 524288, 100, 20000
local most = tonumber(ARGV[9] or '')
local want, from, to, score, last, back = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1'
if score ~= '' and back then to = score elseif score ~= '' then from = score end

-- leases(n) are the next leases behind the first n: name, end, …
local function leases(n)
  if back then return redis.call('ZREVRANGEBYSCORE', KEYS.unack, to, from, 'WITHSCORES', 'LIMIT', n, LEASES) end
  return redis.call('ZRANGEBYSCORE', KEYS.unack, from, to, 'WITHSCORES', 'LIMIT', n, LEASES)
end

-- list(lease) are the tags of a lease, in the order of the page.
local function list(lease)
  local tags = {}
  for tag in string.gmatch(redis.call('HGET', KEYS.lease, lease) or '', '%S+') do tags[#tags + 1] = tag end
  for i = 1, back and math.floor(#tags / 2) or 0 do tags[i], tags[#tags + 1 - i] = tags[#tags + 1 - i], tags[i] end
  return tags
end

-- after(tags) is where a page begins in a list that has the last entry of the page before; nil if the list does not have it.
local function after(tags)
  for i = 1, #tags do
    if tags[i] == last then return i + 1 end
  end
end

local passed, begin = 0, 1 -- so many leases are passed over; where the page begins in the next
if last ~= '' then
  local n, page = 0, leases(0)
  while page[1] and page[2] == score do
    for i = 1, #page, 2 do
      local at = page[i + 1] == score and after(list(page[i]))
      if at then passed, begin = n, at end
      n = n + 1
    end
    page = begin == 1 and leases(n) or {}
  end
end

local out, size, looks, full = {us(now), 0, 0}, 0, 0, false
local function add(tag, ends)
  local n, id = split(tag)
  looks = looks + 1
  if not isheld(id, n) then return end
  if out[3] == want then full = true return end
  local length, envelope = redis.call('HSTRLEN', KEYS.msg, id), nil
  if most and length > most then envelope, length = '\0large ' .. us(length), 0 end
  size = size + length
  if size > REPLY and out[3] > 0 then full = true return end
  out[3] = out[3] + 1
  if not envelope then
    envelope = redis.call('HGET', KEYS.msg, id) or ''
    size = size + weight(envelope) - #envelope -- as in list
  end
  out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = tag, ends, envelope, redis.call('HGET', KEYS.fail, id) or ''
  local missing = missingof(id, envelope)
  out[#out + 1] = missing and us(missing) or ''
end
local page = leases(passed)
while page[1] and not full do
  for i = 1, #page, 2 do
    local tags = list(page[i])
    for j = begin, #tags do
      if not full then add(tags[j], page[i + 1]) end
      full = full or looks >= LOOKS
    end
    begin = 1
  end
  passed = passed + #page / 2
  full = full or passed >= LOOKS
  page = leases(passed)
end
out[2] = full and out[3] > 0 and math.max(out[3] + 1, (howmanyheld())) or out[3]
return out
