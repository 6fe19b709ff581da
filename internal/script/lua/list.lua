-- list reads a page of one structure, in order of time, from where the page before ended.
--
-- KEYS: pending, msg, fail, parts
--       (instead of pending: ready, unack, retry, garbage or done, if that structure is read. The text below calls it KEYS.place.)
-- ARGV: 1 'list' for ready, else 'set', 2 how many entries (0 to 500), 3 from and 4 to, as ZCOUNT takes them, 5 score and 6 tag of the
--       last entry of the page before ('': this is the first page; in ready, 5 is how many entries stood behind that one), 7 '1': backwards, 8 'due' or 'later': only entries that are due, or
--       are not; '': both, 9 how many bytes are read of a message at most; '' or none: all
-- Returns {now, left, n, then for each of n entries: tag, score as it is ('0' in ready), envelope or '', fail record or '', missing}
--       left: how many entries there are from here to the end, with those of this page. n is less than ARGV 2 on the last page, or if the
--       next entry would make the page larger than half a megabyte. The page begins behind the last entry of the page before, also if
--       that has gone. Then as many entries are left in ready as stood behind it, and perhaps some of them are new: forwards, that misses
--       as many others as came in. If a message is larger than ARGV 9, its envelope is as in look. missing: as in look.
-- Cost: O(log n) for the page and for each message; O(ready) in ready. Writes nothing.

-- from time: now, us, whole
-- from group: weight
-- from countdown: missingof
-- from record: split
local REPLY = 524288 -- bytes: a call for many changes a page with one call, which reads and writes as much once more
local most = tonumber(ARGV[9] or '')
local want, from, to, score, last, back = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1'
local function before(a, b) -- as Redis orders members of the same score: by bytes
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
-- rankOfLast() is how many entries stand before the last entry of the page before, and whether that entry is still there.
local function rankOfLast()
  local low, high = redis.call('ZCOUNT', KEYS.place, '-inf', '(' .. score), redis.call('ZCOUNT', KEYS.place, '-inf', score)
  local ends = high
  while low < high do
    local mid = math.floor((low + high) / 2)
    if before(redis.call('ZRANGE', KEYS.place, mid, mid)[1], last) then low = mid + 1 else high = mid end
  end
  return low, low < ends and redis.call('ZRANGE', KEYS.place, low, low)[1] == last
end

local low, page, high = 0, {} -- the first rank; tag, score, …; the last rank
if ARGV[1] == 'list' then
  high = redis.call('LLEN', KEYS.place) - 1
  if last ~= '' then
    local behind = whole(score) or 0
    local at = redis.call('LPOS', KEYS.place, last, 'RANK', back and 1 or -1) or back and behind or high - behind
    if back then high = math.min(high, at - 1) else low = math.max(at + 1, 0) end
  end
  local n = math.min(want, high - low + 1)
  if n > 0 then
    local first = back and high - n + 1 or low
    for i, tag in ipairs(redis.call('LRANGE', KEYS.place, first, first + n - 1)) do
      local to = back and n + 1 - i or i
      page[2 * to - 1], page[2 * to] = tag, '0'
    end
  end
else
  if from ~= '-inf' then
    low = redis.call('ZCARD', KEYS.place) - redis.call('ZCOUNT', KEYS.place, from, '+inf')
  end
  high = redis.call('ZCOUNT', KEYS.place, '-inf', to) - 1
  local due = ARGV[8] ~= '' and redis.call('ZCOUNT', KEYS.place, '-inf', us(now))
  if ARGV[8] == 'due' then high = math.min(high, due - 1) end
  if ARGV[8] == 'later' then low = math.max(low, due) end
  if score ~= '' then
    local rank, there = rankOfLast()
    if back then high = math.min(high, rank - 1) else low = math.max(low, there and rank + 1 or rank) end
  end
  local n = math.min(want, high - low + 1)
  if n > 0 and back then
    local all = redis.call('ZCARD', KEYS.place)
    page = redis.call('ZREVRANGE', KEYS.place, all - 1 - high, all - 2 - high + n, 'WITHSCORES')
  elseif n > 0 then
    page = redis.call('ZRANGE', KEYS.place, low, low + n - 1, 'WITHSCORES')
  end
end

local out, size = {us(now), math.max(high - low + 1, 0), 0}, 0
for i = 1, #page, 2 do
  local _, id = split(page[i])
  local length, envelope = redis.call('HSTRLEN', KEYS.msg, id), nil
  if most and length > most then envelope, length = '\0large ' .. us(length), 0 end
  size = size + length
  if size > REPLY and i > 1 then break end
  out[3] = out[3] + 1
  if not envelope then
    envelope = redis.call('HGET', KEYS.msg, id) or ''
    size = size + weight(envelope) - #envelope -- of a group, because a call for many touches all its parts
  end
  out[#out + 1], out[#out + 2], out[#out + 3] = page[i], page[i + 1], envelope
  out[#out + 1] = redis.call('HGET', KEYS.fail, id) or ''
  local missing = missingof(id, envelope)
  out[#out + 1] = missing and us(missing) or ''
end
return out
