-- repair mends what doctor found, each thing only if it is still wrong. It may be sent again: what is mended is
-- not wrong any more.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 msg, 7 fail, 8 key, 9 wake, 10 state, 11 done, 12 result, 13 held, 14 parts
-- ARGV: 'pending', 'ready', 'unack', 'retry', 'garbage' or 'done' and a tag: it has no envelope, drop it;
--       'key' and a message key: no live message has it, free it, unless it is held still;
--       'place' and an id: its envelope is in no structure, bring it back;
--       'record' and an id: its fail record belongs to no message, delete it;
--       'result' and an id: its result belongs to no message that is done, delete it;
--       'part' and a field of parts: its message is gone, delete it;
--       'list' and a message key: take out of its list what is no live group that has left it;
--       'listed' and an id: it is a live group that has left its key, list it there;
--       'alarm' and a member of wake: set it to the armed instant, or delete it; and so on, at most 100 of them.
-- Returns the error DQLAYOUT, and has done nothing, if state.layout is not known here; or a word for each: 'done'; 'sound': it was not wrong any more; 'garbage': it was brought back, to garbage, for
--       another live message has its key, or an acked one keeps it taken.
-- Cost: O(log n) for each, and O(ready) for those that may be there; at most 14 commands each.
-- Keeps: every invariant that holds before. Reads every key first; the first write is a ZREM: a full server lets the rest pass.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function us(n) return string.format('%.0f', n) end
local function keyof(envelope)
  local hi, lo = string.byte(envelope, 18, 19)
  if not lo or hi * 256 + lo == 0 then return '' end
  return string.sub(envelope, 20, 19 + hi * 256 + lo)
end
local state = redis.call('HMGET', KEYS[10], 'armed', 'pause', 'layout')
if state[3] and state[3] ~= '1' then return {err = 'DQLAYOUT'} end -- what this does not know may keep messages
local armed, pause, first = tonumber(state[1]) or 0, tonumber(state[2]) or 0, nil
redis.call('ZCARD', KEYS[1])
redis.call('LLEN', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[6])
redis.call('HLEN', KEYS[7])
redis.call('HLEN', KEYS[8])
redis.call('ZCARD', KEYS[9])
redis.call('ZCARD', KEYS[11])
redis.call('HLEN', KEYS[12])
redis.call('ZCARD', KEYS[13])
redis.call('HLEN', KEYS[14])
redis.call('ZREM', KEYS[3], '') -- the first write

local mend = {}
local function drop(remove)
  return function(tag)
    local id = string.match(tag, '^.*:(.*)$') or tag
    if redis.call('HEXISTS', KEYS[6], id) == 1 or remove(tag) == 0 then return 'sound' end
    redis.call('HDEL', KEYS[7], id)
    return 'done'
  end
end
mend.pending = drop(function(tag) return redis.call('ZREM', KEYS[1], tag) end)
mend.ready = drop(function(tag) return redis.call('LREM', KEYS[2], 0, tag) end)
mend.unack = drop(function(tag) return redis.call('ZREM', KEYS[3], tag) end)
mend.retry = drop(function(tag) return redis.call('ZREM', KEYS[4], tag) end)
mend.garbage = drop(function(tag) return redis.call('ZREM', KEYS[5], tag) end)
mend.done = drop(function(tag) return redis.call('ZREM', KEYS[11], tag) end)

-- held(key) says whether a key stays taken after an ack, as heldUntil of the library does.
local function held(key)
  local ends = tonumber(redis.call('ZSCORE', KEYS[13], key) or 0) or 0
  return ends > now and ends <= now + 31536000000000
end

function mend.key(key)
  local id = redis.call('HGET', KEYS[8], key)
  if not id or string.sub(id, 1, 6) == 'acked:' and redis.call('ZSCORE', KEYS[13], key) then return 'sound' end
  local envelope = redis.call('HGET', KEYS[6], id)
  local live = envelope and not redis.call('ZSCORE', KEYS[5], id) and not redis.call('ZSCORE', KEYS[11], id)
  if live and keyof(envelope) == key then return 'sound' end
  if held(key) then
    redis.call('HSET', KEYS[8], key, 'acked:' .. id)
  else
    redis.call('HDEL', KEYS[8], key)
  end
  return 'done'
end

local function placed(tag)
  return redis.call('ZSCORE', KEYS[1], tag) or redis.call('ZSCORE', KEYS[3], tag) or redis.call('ZSCORE', KEYS[4], tag)
    or redis.call('ZSCORE', KEYS[5], tag) or redis.call('ZSCORE', KEYS[11], tag) or redis.call('LPOS', KEYS[2], tag)
end

function mend.place(id)
  local envelope = redis.call('HGET', KEYS[6], id)
  local n, failures, losses, text = string.match(redis.call('HGET', KEYS[7], id) or '', '^(%d+) (%d+) (%d+) %d+ \31?(.*)$')
  if not envelope or placed(id) or n and placed(n .. ':' .. id) then return 'sound' end
  local key = keyof(envelope)
  local holder = key ~= '' and redis.call('HGET', KEYS[8], key)
  local acked = holder and string.match(holder, '^acked:(.*)$')
  if acked and held(key) then
    holder = acked
  elseif holder and redis.call('HEXISTS', KEYS[6], holder) == 0 then
    holder = nil
  end
  if holder and holder ~= id then
    redis.call('ZADD', KEYS[5], us(now), id)
    local errors = text or ''
    if errors ~= '' and string.sub(errors, 1, 1) ~= '\30' then errors = '\30' .. '0 0 ' .. errors end
    errors = string.match(errors, '^(' .. string.rep('\30[^\30]*', 4) .. ')\30') or errors -- five with this one
    redis.call('HSET', KEYS[7], id, (n or '1') .. ' ' .. (failures or '0') .. ' ' .. (losses or '0') .. ' ' .. us(now) ..
      ' \30' .. us(now) .. ' 0 found in no structure by doctor, and message ' .. holder .. ' has its key' .. errors)
    return 'garbage'
  end
  -- A delivery of its own, so that whoever may hold an older one cannot settle it; never before it is due.
  local tag = (n or 1) + 1 .. ':' .. id
  local next = math.max(now, tonumber(string.sub(envelope, 2, 17)) or now)
  redis.call('HSET', KEYS[7], id, (n or 1) + 1 .. ' ' .. (failures or '0') .. ' ' .. (losses or '0') .. ' ' .. us(now) .. ' ' .. (text or ''))
  redis.call('ZADD', KEYS[4], us(next), tag)
  if key ~= '' then redis.call('HSET', KEYS[8], key, id) end
  mend.listed(id)
  if not first or next < first then first = next end
  return 'done'
end

function mend.record(id)
  if redis.call('HEXISTS', KEYS[6], id) == 1 or redis.call('HDEL', KEYS[7], id) == 0 then return 'sound' end
  return 'done'
end

function mend.result(id)
  if redis.call('ZSCORE', KEYS[11], id) or redis.call('HDEL', KEYS[12], id) == 0 then return 'sound' end
  return 'done'
end

function mend.part(field)
  if redis.call('HEXISTS', KEYS[6], string.match(field, '^[^:]*')) == 1 or redis.call('HDEL', KEYS[14], field) == 0 then return 'sound' end
  return 'done'
end

-- leftkey(envelope) is the key that a group has left, as in left.lua; '' for any other message.
local function leftkey(envelope)
  local hi, lo = string.byte(envelope, 18, 19)
  local i = string.byte(envelope, 1) == 2 and lo and 20 + hi * 256 + lo
  while i and (string.byte(envelope, i) or 0) > 129 do -- fields of few bytes
    i = i + 2 + (string.byte(envelope, i + 1) or 0)
  end
  local low, high = string.byte(envelope, (i or 0) + 1, (i or 0) + 2)
  if not i or string.byte(envelope, i) ~= 129 or not high then return '' end
  if low < 128 then return string.sub(envelope, i + 13, i + 1 + low) end
  return string.sub(envelope, i + 14, i + 2 + low - 128 + 128 * high)
end

local LEFT = 100 -- ids in a list at most
-- relist(key, id) lists by a key those live groups that left it and were listed, and one more ('': none). It says whether that is
-- another list than before.
local function relist(key, id)
  local before = redis.call('HGET', KEYS[14], ':' .. key) or ''
  local ids, there = {}, {}
  for other in string.gmatch(string.sub(before, 1, 1000 * 37) .. ' ' .. id, '%S+') do
    local envelope = not there[other] and redis.call('HGET', KEYS[6], other)
    local live = envelope and not redis.call('ZSCORE', KEYS[5], other) and not redis.call('ZSCORE', KEYS[11], other)
    if live and leftkey(envelope) == key and #ids < LEFT then ids[#ids + 1] = other end
    there[other] = true
  end
  local list = table.concat(ids, ' ')
  if list == before and (list ~= '' or redis.call('HEXISTS', KEYS[14], ':' .. key) == 0) then return 'sound' end
  if list == '' then
    redis.call('HDEL', KEYS[14], ':' .. key)
  else
    redis.call('HSET', KEYS[14], ':' .. key, list)
    redis.call('HSET', KEYS[10], 'parts', '1')
  end
  return 'done'
end
function mend.list(key) return relist(key, '') end
function mend.listed(id)
  local key = leftkey(redis.call('HGET', KEYS[6], id) or '')
  return key == '' and 'sound' or relist(key, id)
end

function mend.alarm(member)
  local score = redis.call('ZSCORE', KEYS[9], member)
  if not score or member == 'w' and tonumber(score) == armed then return 'sound' end
  if member == 'w' and armed > 0 then
    redis.call('ZADD', KEYS[9], us(armed), 'w')
  else
    redis.call('ZREM', KEYS[9], member)
  end
  return 'done'
end

local words = {}
for i = 1, #ARGV, 2 do words[#words + 1] = mend[ARGV[i]](ARGV[i + 1]) end
if first then
  first = math.max(first, pause) -- nobody wakes while the queue is paused
  if armed == 0 or first < armed then
    redis.call('ZADD', KEYS[9], us(first), 'w')
    redis.call('HSET', KEYS[10], 'armed', us(first))
  end
end
return words
