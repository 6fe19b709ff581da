-- steer moves or deletes messages, each wherever it waits; none that is being handled.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 msg, 7 fail, 8 key, 9 wake, 10 state
-- ARGV: 3 what: 'at' (due at that instant), 'by' (due so much later), 'requeue' (from garbage, due now, as if it
--       had never failed) or 'delete'; 4 us, of 'at' and 'by'; 5 the state that it must be in ('': any);
--       then the ids, at most 500
-- Returns {now, a word for each id}: the state it was in, if it was done; '!<state>' if it is in a state in which
--       this cannot be done, 'gone' and 'unack' among them; '=<id>' if that message holds its key now.
-- Cost: O(log n) for each id, and O(ready) if it is there; at most 14 commands each.
-- Keeps: invariants 1, 3, 4 and 6; reads every key first. The first write is a ZREM: a full server lets the rest pass.
local field = 'call:' .. ARGV[1]
local what, arg, only = ARGV[3], tonumber(ARGV[4]), ARGV[5]
local state = redis.call('HMGET', KEYS[10], field, 'armed', 'pause')
local reply, at = recall(state[1])
if reply then return {at, reply} elseif reply == false then return stale end
redis.call('ZCARD', KEYS[1])
redis.call('LLEN', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[6])
redis.call('HLEN', KEYS[7])
redis.call('HLEN', KEYS[8])
redis.call('ZCARD', KEYS[9])
redis.call('ZREM', KEYS[3], '') -- the first write

local words, first = {}, nil
for i = 6, #ARGV do
  local id = ARGV[i]
  local envelope = redis.call('HGET', KEYS[6], id)
  local failure = redis.call('HGET', KEYS[7], id) or ''
  local n, text = string.match(failure, '^(%d+) %d+ %d+ %d+ (.*)$')
  local tag = (not n or n == '1') and id or n .. ':' .. id
  local where, place, score = 'gone', nil, nil
  if envelope then
    score = redis.call('ZSCORE', KEYS[1], tag)
    if score then
      place, where = 'pending', tonumber(score) <= now and 'ready' or 'pending'
    elseif redis.call('ZSCORE', KEYS[3], tag) then
      where = 'unack'
    elseif redis.call('ZSCORE', KEYS[5], id) then
      place, where = 'garbage', 'garbage'
    elseif redis.call('LPOS', KEYS[2], tag) then
      place, where = 'ready', 'ready'
    else
      score = redis.call('ZSCORE', KEYS[4], tag)
      if score then place, where = 'retry', tonumber(score) <= now and 'ready' or 'retry' end
    end
  end
  local allowed = place and (only == '' or only == where)
  if what == 'requeue' then
    allowed = allowed and place == 'garbage'
  elseif what ~= 'delete' then
    allowed = allowed and place ~= 'garbage'
  end
  local key = allowed and keyof(envelope, 18) or ''
  local holder = key ~= '' and redis.call('HGET', KEYS[8], key)
  if not allowed then
    where = '!' .. where
  elseif what == 'requeue' and holder and holder ~= id and redis.call('HEXISTS', KEYS[6], holder) == 1 then
    where = '=' .. holder
  elseif what == 'delete' then
    redis.call('ZREM', KEYS[1], tag)
    redis.call('ZREM', KEYS[4], tag)
    redis.call('ZREM', KEYS[5], id)
    if place == 'ready' then redis.call('LREM', KEYS[2], 1, tag) end
    if holder == id then redis.call('HDEL', KEYS[8], key) end
    redis.call('HDEL', KEYS[6], id)
    redis.call('HDEL', KEYS[7], id)
  else
    local next = now
    if what == 'at' then next = math.max(now, arg) end
    if what == 'by' then next = math.min(math.max(now, (tonumber(score) or now) + arg), 7258118400000000) end -- year 2200
    if place == 'pending' then
      redis.call('ZADD', KEYS[1], us(next), tag)
      redis.call('HSET', KEYS[6], id, string.sub(envelope, 1, 1) .. string.format('%016.0f', next) .. string.sub(envelope, 18))
    else
      if place == 'ready' then redis.call('LREM', KEYS[2], 1, tag) end
      if place == 'garbage' then
        redis.call('ZREM', KEYS[5], id)
        if not n or n == '1' then n = '2' end
        tag = n .. ':' .. id
        redis.call('HSET', KEYS[7], id, n .. ' 0 0 ' .. us(now) .. ' ' .. (text or ''))
        if key ~= '' then redis.call('HSET', KEYS[8], key, id) end
      end
      redis.call('ZADD', KEYS[4], us(next), tag)
    end
    if not first or next < first then first = next end
  end
  words[#words + 1] = where
end

local said = table.concat(words, ' ')
local marks = {field, record(said)}
local armed = tonumber(state[2]) or 0
if first then
  first = math.max(first, tonumber(state[3]) or 0) -- nobody wakes while the queue is paused
  if armed == 0 or first < armed then
    redis.call('ZADD', KEYS[9], us(first), 'w')
    marks[3], marks[4] = 'armed', us(first)
  end
end
redis.call('HSET', KEYS[10], unpack(marks))
return {us(now), said}
