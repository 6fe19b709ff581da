-- list reads a page of one structure, in order of time, from where the page before it ended.
--
-- KEYS: pending, msg, fail
--       (KEYS.place below: pending stands for ready, unack, retry, garbage or done if that is to be read)
-- ARGV: 1 'list' if it is ready, else 'set', 2 how many (0 to 500), 3 from and 4 to, as ZCOUNT takes them,
--       5 score and 6 tag of the last one of the page before ('': this is the first page), 7 '1': backwards,
--       8 'due': only what is due; 'later': only what is not; '': both; 9 how many bytes are read of one at most; '' or none: all
-- Returns {now, left, looked, then for each looked at: tag, score as it is ('0' in ready), envelope or '', fail record
--       or ''}. left: how many there are from here to the end, those of this page among them. Fewer than asked for: it
--       is the last page, or the next one would make it more than half a megabyte. It goes on behind the last one of the page
--       before although that has gone; but in ready, from the head, or backwards the tail, if that has gone. The envelope of one that
--       is larger is as in look.
-- Cost: O(log n) for the page and for each message; O(ready) in ready. Writes nothing.

-- include head, tag, parts
local REPLY = 524288 -- a call for many changes the whole page with one call, which reads and writes as much once more
local most = tonumber(ARGV[9] or '')
local limit, from, to, score, last, back = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1'
local function before(a, b) -- as Redis orders what has the same score: by bytes
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
-- rankOfLast() is how many entries stand before the last one of the page before, and whether that one is still there.
local function rankOfLast()
  local low, high = redis.call('ZCOUNT', KEYS.place, '-inf', '(' .. score), redis.call('ZCOUNT', KEYS.place, '-inf', score)
  local ends = high
  while low < high do
    local mid = math.floor((low + high) / 2)
    if before(redis.call('ZRANGE', KEYS.place, mid, mid)[1], last) then low = mid + 1 else high = mid end
  end
  return low, low < ends and redis.call('ZRANGE', KEYS.place, low, low)[1] == last
end

local low, high, page = 0, -1, {} -- from which to which; tag, score, …
if ARGV[1] == 'list' then
  high = redis.call('LLEN', KEYS.place) - 1
  local at = last ~= '' and redis.call('LPOS', KEYS.place, last, 'RANK', back and 1 or -1)
  if at and back then high = at - 1 elseif at then low = at + 1 end
  local n = math.min(limit, high - low + 1)
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
  local n = math.min(limit, high - low + 1)
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
    size = size + weight(envelope) - #envelope -- of a group, for whoever does something to all of them
  end
  out[#out + 1], out[#out + 2], out[#out + 3] = page[i], page[i + 1], envelope
  out[#out + 1] = redis.call('HGET', KEYS.fail, id) or ''
end
return out
