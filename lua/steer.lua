-- steer moves or deletes messages, each wherever it waits, or only where a list has found it.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state
-- ARGV: 3 what: 'at' (due at that instant), 'by' (due so much later), 'requeue' (from garbage, due at that instant, as
--       if it had never failed), 'delete', or 'cancel' (delete, also what is being handled); 4 us, of the first three;
--       5 us by which each that is done is due later than the one before (at, requeue);
--       6 '': each is an id, to be found; 'key': each is a caller's key; else the structure in which each is a tag;
--       then pairs: id or key and '', or tag and the score that list gave it ('': any); at most 500, with at most 1 MB
-- Returns {now, a word for each}: the state it was in, if it was done; '!<state>' if it is in a state in which
--       this cannot be done, 'gone' and 'unack' among them, or is not where it was listed any more ('!gone');
--       '=<id>' if that message holds its key now; '~<state>' if it was to be due now and is already: it stays in its
--       place, done.
-- Cost: O(log n) for each, and O(ready) if it is there; at most 14 commands each. Reads the envelope of what is
--       pending, deleted or requeued.
-- Keeps: invariants 1, 3, 4 and 6; reads every key first. The first write is a ZREM: a full server lets the rest pass.
local field = 'call:' .. ARGV[1]
local what, arg, step, only = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local bykey = only == 'key'
if bykey then only = '' end
local deletes = what == 'delete' or what == 'cancel'
local state = redis.call('HMGET', KEYS.state, field, 'armed', 'pause')
local reply, at = recall(state[1])
if reply then return {at, reply} elseif reply == false then return stale end
redis.call('ZCARD', KEYS.pending)
redis.call('LLEN', KEYS.ready)
redis.call('ZCARD', KEYS.unack)
redis.call('ZCARD', KEYS.retry)
redis.call('ZCARD', KEYS.garbage)
redis.call('HLEN', KEYS.msg)
redis.call('HLEN', KEYS.fail)
redis.call('HLEN', KEYS.key)
redis.call('ZCARD', KEYS.wake)
redis.call('ZREM', KEYS.unack, '') -- the first write

-- find says in which structure a delivery is, and its score. Of a dead message the id stands in garbage.
local function find(tag, id)
  local score = (only == '' or only == 'pending') and redis.call('ZSCORE', KEYS.pending, tag)
  if score then return 'pending', score end
  score = (only == '' or only == 'unack') and redis.call('ZSCORE', KEYS.unack, tag)
  if score then return 'unack', score end
  score = (only == '' or only == 'garbage') and redis.call('ZSCORE', KEYS.garbage, id)
  if score then return 'garbage', score end
  score = (only == '' or only == 'retry') and redis.call('ZSCORE', KEYS.retry, tag)
  if score then return 'retry', score end
  if (only == '' or only == 'ready') and redis.call('LPOS', KEYS.ready, tag) then return 'ready', '0' end
end

local words, first, nth = {}, nil, 0
for i = 7, #ARGV, 2 do
  local id, tag, listed = ARGV[i], ARGV[i], ARGV[i + 1]
  if bykey then
    id = redis.call('HGET', KEYS.key, ARGV[i]) or ''
    if keyof(redis.call('HGET', KEYS.msg, id) or '', 18) ~= ARGV[i] then id = '' end -- somebody else wrote that entry
    tag = id
  end
  local failure = nil
  if only == '' then
    failure = redis.call('HGET', KEYS.fail, id) or ''
    local n = string.match(failure, '^(%d+) ')
    if n and n ~= '1' then tag = n .. ':' .. id end
  elseif only ~= 'garbage' then
    id = string.match(tag, '^[1-9]%d*:(.+)$') or tag
  end
  local place, score = find(tag, id)
  if place and listed ~= '' and listed ~= score then place = nil end
  local envelope = nil
  if place == 'pending' or (place and (deletes or what == 'requeue')) then
    envelope = redis.call('HGET', KEYS.msg, id)
  elseif place and redis.call('HEXISTS', KEYS.msg, id) == 1 then
    envelope = ''
  end
  if not envelope then place = nil end
  local due = place == 'ready' or (place == 'pending' or place == 'retry') and scored(score) <= now
  local where = not place and 'gone' or due and 'ready' or place
  local allowed = place and (place ~= 'unack' or what == 'cancel')
  if what == 'requeue' then
    allowed = allowed and place == 'garbage'
  elseif not deletes then
    allowed = allowed and place ~= 'garbage'
  end
  local key = allowed and envelope ~= '' and keyof(envelope, 18) or ''
  local holder = key ~= '' and redis.call('HGET', KEYS.key, key)
  if not allowed then
    where = '!' .. where
  elseif what == 'requeue' and holder and holder ~= id and redis.call('HEXISTS', KEYS.msg, holder) == 1 then
    where = '=' .. string.gsub(holder, '[^!-~]', '?') -- somebody else may have written it
  elseif deletes then
    redis.call('ZREM', KEYS.pending, tag)
    redis.call('ZREM', KEYS.unack, tag)
    redis.call('ZREM', KEYS.retry, tag)
    redis.call('ZREM', KEYS.garbage, id)
    if place == 'ready' then redis.call('LREM', KEYS.ready, 1, tag) end
    if holder == id then redis.call('HDEL', KEYS.key, key) end
    redis.call('HDEL', KEYS.msg, id)
    redis.call('HDEL', KEYS.fail, id)
  else
    local next = arg + nth * step
    if what == 'by' then next = (place ~= 'ready' and scored(score) or now) + arg end
    next = math.min(next, 7258118400000000) -- year 2200
    nth = nth + 1
    if next > now or not due then
      next = math.max(next, now)
      if place == 'pending' then
        redis.call('ZADD', KEYS.pending, us(next), tag)
        redis.call('HSET', KEYS.msg, id, string.sub(envelope, 1, 1) .. string.format('%016.0f', next) .. string.sub(envelope, 18))
      else
        if place == 'ready' then redis.call('LREM', KEYS.ready, 1, tag) end
        if place == 'garbage' then
          redis.call('ZREM', KEYS.garbage, id)
          local n, text = string.match(failure or redis.call('HGET', KEYS.fail, id) or '', '^(%d+) %d+ %d+ %d+ (.*)$')
          if not n or n == '1' then n = '2' end
          tag = n .. ':' .. id
          redis.call('HSET', KEYS.fail, id, n .. ' 0 0 ' .. us(now) .. ' ' .. (text or ''))
          if key ~= '' then redis.call('HSET', KEYS.key, key, id) end
        end
        redis.call('ZADD', KEYS.retry, us(next), tag)
      end
      if not first or next < first then first = next end
    else
      where = '~' .. where
    end
  end
  words[#words + 1] = where
end

local said = table.concat(words, ' ')
local marks = {field, record(said)}
local armed = whole(state[2]) or 0
if first then
  first = math.max(first, whole(state[3]) or 0) -- nobody wakes while the queue is paused
  if armed == 0 or first < armed then
    redis.call('ZADD', KEYS.wake, us(first), 'w')
    marks[3], marks[4] = 'armed', us(first)
  end
end
redis.call('HSET', KEYS.state, unpack(marks))
return {us(now), said}
