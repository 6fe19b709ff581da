-- steer moves or deletes messages, each wherever it waits, or only where a list has found it.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, done, result, held, parts
-- ARGV: 3 what: 'at' (due at that instant), 'by' (due so much later), 'requeue' (from garbage, due at that instant, as
--       if it had never failed), 'delete', 'cancel' (delete, also what is being handled), 'release' (a key that is held), or 'claim' (the one caller
--       may carry out what was counted at an instant, 55 minutes ago at most; 0: at any time); 4 us, of the first three and the last;
--       5 us by which each that is done is due later than the one before (at, requeue);
--       6 '': each is an id, to be found; 'key': each is a message key; else the structure in which each is a tag;
--       then pairs: id or key and '', or tag and the score that list gave it ('': any); at most 500, with at most 1 MB;
--       of 'claim' any word and ''
-- Returns {now, a word for each}: the state it was in, if it was done; '!<state>' if it is in a state in which
--       this cannot be done, 'gone' and 'unack' among them, or is not where it was listed any more ('!gone');
--       '=<id>' if that message holds its key now, '=acked:<id>' if it was acked and keeps it; 'done' of a hold that is released; '~<state>' if it was to be due now and is already: it stays in its
--       place, done. Of 'claim' the word of who came first; '': it is too late.
--       Or the error DQLAYOUT, if ARGV 6 is a structure and the layout is not known: it did nothing.
-- Cost: O(log n) for each, and O(ready) if it is there; at most 14 commands each, and O(parts) to delete it.
--       Reads the envelope of what is pending, deleted or requeued.
--       A handler whose message is canceled keeps its place, if the concurrency of the queue is bounded (overran.lua).
-- Keeps: invariants 1, 3, 4, 6 and 9 of PROTOCOL.md; reads every key first. The first write is a ZREM: a full
--       server lets the rest pass.

-- include head, call, layout, score, envelope, tag, failure, setfailure, locate, remove, overran
local what, arg, step, only = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local bykey = only == 'key'
if bykey then only = '' end
local deletes = what == 'delete' or what == 'cancel'
local saved, armed, pause, layout, groups, limits, override, firstHold =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'pause', 'layout', 'parts', 'limits', 'override', 'held'), 1, 8)
local reply, at = recall(saved)
if reply then return {at, reply} elseif reply == false then return STALE end
-- include existing
local refusal = only ~= '' and unknown(layout) -- of calls for many
if refusal then return refusal end
guard(redis.call('ZCARD', KEYS.pending), redis.call('LLEN', KEYS.ready), redis.call('ZCARD', KEYS.unack),
  redis.call('ZCARD', KEYS.retry), redis.call('ZCARD', KEYS.garbage), redis.call('HLEN', KEYS.msg),
  redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.wake),
  redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result), redis.call('ZCARD', KEYS.held))
local holds = (whole(firstHold) or 0) > 0 -- some key is held
local drop, nameof, unlist -- if there are groups: deletes the parts of one, is the key that it has left, and lists it by that
-- include erase, holder
if groups then
  guard(redis.call('HLEN', KEYS.parts))
  -- include parts, dropparts, left, setleft
  drop, nameof, unlist = function(id, envelope) dropparts(id, (partsof(envelope))) end, leftkey, setleft
end
redis.call('ZREM', KEYS.unack, '') -- the first write
if what == 'claim' then
  local word = (arg == 0 or now >= arg and now - arg < 3300000000) and ARGV[7] or '' -- who comes when this call is forgotten is late
  remember(word)
  return {us(now), word}
end

-- release(key) ends the hold of a key, and says where the message was of which it is.
local function release(key)
  if not heldUntil(key) then return '!gone' end
  redis.call('ZREM', KEYS.held, key)
  if string.sub(redis.call('HGET', KEYS.key, key) or '', 1, 6) == 'acked:' then redis.call('HDEL', KEYS.key, key) end
  return 'done'
end

-- steer(i) does to the target at ARGV i what is to be done, and returns the word for it.
local first, nth = nil, 0
local function steer(i)
  local id, tag, listed = ARGV[i], ARGV[i], ARGV[i + 1]
  if bykey then
    id = redis.call('HGET', KEYS.key, ARGV[i]) or ''
    if keyof(redis.call('HGET', KEYS.msg, id) or '') ~= ARGV[i] then id = '' end -- somebody else wrote that entry
    tag = id
  end
  local record
  if only == '' then
    record = redis.call('HGET', KEYS.fail, id) or ''
    tag = tagof(id, record)
  elseif only ~= 'garbage' and only ~= 'done' then
    local _
    _, id = split(tag)
  end
  local place, score = locate(tag, id, only)
  if not place and (only == '' or only == 'ready') and redis.call('LPOS', KEYS.ready, tag) then place, score = 'ready', '0' end
  if place and listed ~= '' and listed ~= score then place = nil end
  local envelope
  if place == 'pending' or (place and (deletes or what == 'requeue')) then
    envelope = redis.call('HGET', KEYS.msg, id)
  elseif place and redis.call('HEXISTS', KEYS.msg, id) == 1 then
    envelope = ''
  end
  if not envelope then place = nil end
  local due = place == 'ready' or (place == 'pending' or place == 'retry') and scored(score) <= now
  local where = not place and 'gone' or due and 'ready' or place
  local allowed = place and (place ~= 'unack' or what == 'cancel')
  if not deletes then allowed = allowed and (place == 'garbage') == (what == 'requeue') and place ~= 'done' end
  local key = allowed and envelope ~= '' and keyof(envelope) or ''
  local holder, acked
  if what == 'requeue' and key ~= '' then holder, acked = holderof(key) end
  if not allowed then
    where = '!' .. where
  elseif holder and holder ~= id then
    where = named(holder, acked)
  elseif deletes then
    remove(place, tag, id)
    if place == 'unack' and placesOf(limits, override) > 0 then
      redis.call('ZADD', KEYS.unack, even(scored(score)), OVERRUN .. tag)
    end
    if drop then drop(id, envelope) end
    erase(id, key ~= '' and key or nameof and nameof(envelope) or '')
  else
    local next = arg + nth * step
    if what == 'by' then next = (place ~= 'ready' and scored(score) or now) + arg end
    next = math.min(next, 7258118400000000) -- year 2200
    nth = nth + 1
    if due and next <= now then
      where = '~' .. where
    else
      next = math.max(next, now)
      if place == 'pending' then
        redis.call('ZADD', KEYS.pending, us(next), tag)
        redis.call('HSET', KEYS.msg, id, redue(envelope, us(next)))
      else
        if place == 'ready' or place == 'garbage' then remove(place, tag, id) end
        if place == 'garbage' then
          record = record or redis.call('HGET', KEYS.fail, id)
          local _, _, errors = failure(record)
          local n = delivery(record)
          if n == '1' then n = '2' end
          tag = n .. ':' .. id
          setfailure(id, n, '0 0', errors)
          if key ~= '' then redis.call('HSET', KEYS.key, key, id) end
          local name = nameof and nameof(envelope) or ''
          if name ~= '' then unlist(name, id, true) end
        end
        redis.call('ZADD', KEYS.retry, us(next), tag)
      end
      if not first or next < first then first = next end
    end
  end
  return where
end

local words = {}
for i = 7, #ARGV, 2 do words[#words + 1] = what == 'release' and release(ARGV[i]) or steer(i) end
local said = table.concat(words, ' ')
if first then
  -- include arm
  first = gate(first, pause)
  if sooner(first, armed) then arm(first) end
end
remember(said)
return {us(now), said}
