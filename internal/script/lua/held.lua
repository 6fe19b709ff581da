-- held reads a page of what is held, lease by lease in the order of a scan (ZSCAN), from where the page before ended.
-- Renewals do not change that order. So a message that is held while all pages are read is in one of them, and perhaps in
-- two while Redis resizes the table. If it shrinks meanwhile, to an eighth or less, the page that follows may miss
-- leases of the part in which the page before ended. After a failover the order is another.
--
-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, done, parts, waiting
-- ARGV: 2 how many entries (0 to 500), 5 and 6 the last entry of the page before: its cursor, and its lease, a blank and
--       its tag ('': this is the first page), 9 how many bytes are read of a message at most; '' or none: all. The
--       others do not matter
-- Returns {now, left, n, then for each of n entries as list, and the cursor of its part of the scan, and its lease}
--       The score of an entry is the end of its lease. left: at least the number of entries of this page, and more if
--       others follow: about how many are held. If the tag of the last entry of the page before has gone, the page
--       begins with the first tag of its lease.
-- Cost: O(1) for each message; 2 commands for each tag of a lease that is held no more, at most 20,000 tags and
--       leases: a page that finds nothing among these ends the list. Writes nothing.

-- from time: now, us
-- from group: weight
-- from countdown: missingof
-- from record: split
-- from lease: isheld, howmanyheld
local REPLY, LOOKS = 524288, 20000
local most, want = tonumber(ARGV[9] or ''), tonumber(ARGV[2])
local cursor = string.match(ARGV[5], '^%d+$') or '0'
local lease, last = string.match(ARGV[6], '^(.*) (%S*)$') -- of the last entry of the page before

-- part(cursor) is the next part of the scan: names of leases in order, the ends of these leases, and the cursor that
-- follows. While there are few leases, this is all of them. The order of < may differ between servers.
local function part(cursor)
  local got, names, ends = redis.call('ZSCAN', KEYS.unack, cursor, 'COUNT', 1), {}, {}
  for i = 1, #got[2], 2 do names[#names + 1], ends[got[2][i]] = got[2][i], got[2][i + 1] end
  table.sort(names)
  return names, ends, got[1]
end

-- tagsof(name) are the tags of a lease, and where the page begins among them.
local function tagsof(name)
  local tags, begin = {}, 1
  for tag in string.gmatch(redis.call('HGET', KEYS.lease, name) or '', '%S+') do
    tags[#tags + 1] = tag
    if name == lease and tag == last then begin = #tags + 1 end
  end
  return tags, begin
end

local out, size, looks, full = {us(now), 0, 0}, 0, 0, false
local function add(tag, ends, name)
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
  out[#out + 1], out[#out + 2], out[#out + 3] = missing and us(missing) or '', cursor, name
end
repeat
  local names, ends, follows = part(cursor)
  for _, name in ipairs(names) do
    local tags, begin = {}, 1
    if not full and not (lease and name < lease) then tags, begin = tagsof(name) end
    for i = begin, #tags do
      if not full then add(tags[i], ends[name], name) end
      full = full or looks >= LOOKS
    end
    looks = looks + 1
  end
  lease = nil
  if not full then cursor = follows end
  full = full or looks >= LOOKS and cursor ~= '0'
until full or cursor == '0'
out[2] = full and (out[3] > 0 or want == 0) and math.max(out[3] + 1, howmanyheld()) or out[3]
return out
