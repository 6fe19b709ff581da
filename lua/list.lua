-- list reads a page of one structure, in order of time.
--
-- KEYS: 1 pending, 2 msg, 3 fail
--       (1 is ready, unack, retry or garbage if that is to be read)
-- ARGV: 1 'list' if it is ready, else 'set', 2 how many (1 to 500), 3 from us ('-inf': any), 4 to us ('+inf': any),
--       5 score and 6 tag of the last one of the page before ('': this is the first page), 7 '1': backwards,
--       8 'due': only what is due; 'later': only what is not; '': both
-- Returns {now, how many, then for each: tag, score ('0' in ready), envelope or '', fail record or ''}.
--       Fewer than asked for: it is the last page, or they are more than 4 MB. Where the last one of the
--       page before has gone or moved, those of the same instant may come again.
-- Cost: O(log n) for the page and for each message; O(ready) in ready. Writes nothing.
local REPLY = 4194304
local limit, from, to, score, last, back = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1'
local page = {} -- tag, score, …
if ARGV[1] == 'list' then
  local low = last ~= '' and redis.call('LPOS', KEYS[1], last) or -1
  for i, tag in ipairs(redis.call('LRANGE', KEYS[1], low + 1, low + limit)) do page[2 * i - 1], page[2 * i] = tag, '0' end
else
  local low, high = 0, -1 -- ranks
  if from ~= '-inf' then low = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. from) end
  high = redis.call('ZCOUNT', KEYS[1], '-inf', to) - 1
  local due = ARGV[8] ~= '' and redis.call('ZCOUNT', KEYS[1], '-inf', us(now))
  if ARGV[8] == 'due' then high = math.min(high, due - 1) end
  if ARGV[8] == 'later' then low = math.max(low, due) end
  if last ~= '' then
    local at = redis.call('ZSCORE', KEYS[1], last)
    local there = at and tonumber(at) == tonumber(score)
    if there and back then
      high = math.min(high, redis.call('ZRANK', KEYS[1], last) - 1)
    elseif there then
      low = math.max(low, redis.call('ZRANK', KEYS[1], last) + 1)
    elseif back then
      high = math.min(high, redis.call('ZCOUNT', KEYS[1], '-inf', score) - 1)
    else
      low = math.max(low, redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score))
    end
  end
  if back then low = math.max(low, high - limit + 1) else high = math.min(high, low + limit - 1) end
  if low <= high and back then
    page = redis.call('ZREVRANGE', KEYS[1], redis.call('ZCARD', KEYS[1]) - 1 - high, redis.call('ZCARD', KEYS[1]) - 1 - low, 'WITHSCORES')
  elseif low <= high then
    page = redis.call('ZRANGE', KEYS[1], low, high, 'WITHSCORES')
  end
end

local out, size = {us(now), 0}, 0
for i = 1, #page, 2 do
  local id = string.match(page[i], '^[1-9]%d*:(.+)$') or page[i]
  size = size + redis.call('HSTRLEN', KEYS[2], id)
  if size > REPLY and i > 1 then break end
  out[2] = (i + 1) / 2
  out[#out + 1], out[#out + 2] = page[i], us(tonumber(page[i + 1]))
  out[#out + 1] = redis.call('HGET', KEYS[2], id) or ''
  out[#out + 1] = redis.call('HGET', KEYS[3], id) or ''
end
return out
