-- intercept takes a message out, wherever it is; one that is being handled only if ARGV 5 says so.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, done, result, held, parts
-- ARGV: 3 'id' or 'key', 4 the id or the message key, 5 '1': also while it is being handled
-- Returns {the state it was in, its id}: 'gone', 'pending', 'ready', 'unack' (it stays, unless ARGV 5 says so),
--       'retry', 'garbage' or 'done' (it stays); the id is '' if it is gone. A message whose due instant has come is
--       ready, although it leaves pending only when it is handed out.
-- Cost: O(log n), and O(ready) if it is there, which is 2 ms in 50,000; it reads the envelope if any message has a key or
--       there are groups; O(parts).
-- Keeps: invariants 1 and 6 of PROTOCOL.md; reads every key first. A running handler notices when its
--       lease is to be renewed.

-- include head, call, score, envelope, locate, remove
local saved, groups, limited, armed, firstHold =
  unpack(redis.call('HMGET', KEYS.state, field, 'parts', 'limited', 'armed', 'held'), 1, 5)
local reply = recall(saved)
if reply then
  local where, id = string.match(reply, '^(%a+) (.*)$')
  return {where or reply, id or ''}
elseif reply == false then
  return STALE
end
-- include existing
guard(redis.call('ZCARD', KEYS.pending), redis.call('LLEN', KEYS.ready), redis.call('ZCARD', KEYS.unack),
  redis.call('ZCARD', KEYS.retry), redis.call('ZCARD', KEYS.garbage), redis.call('HLEN', KEYS.msg),
  redis.call('HLEN', KEYS.fail), redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result), redis.call('ZCARD', KEYS.held),
  redis.call('ZCARD', KEYS.wake))
if groups then guard(redis.call('HLEN', KEYS.parts)) end
local keyed = redis.call('HLEN', KEYS.key) > 0
local id, key = ARGV[4], ''
if ARGV[3] == 'key' then id = redis.call('HGET', KEYS.key, ARGV[4]) end
local envelope = id and (keyed or groups) and redis.call('HGET', KEYS.msg, id)
if envelope then key = keyof(envelope) end
local found = id and redis.call('HEXISTS', KEYS.msg, id) == 1
if ARGV[3] == 'key' and key ~= ARGV[4] then found = false end -- somebody else wrote that entry
local tag = found and tagof(id, redis.call('HGET', KEYS.fail, id))
local holds = (whole(firstHold) or 0) > 0 -- some key is held
-- include erase
redis.call('ZREM', KEYS.unack, '') -- the first write

local where, taken, score = nil, true, nil
if found then
  where, score = locate(tag, id, '')
  taken = where ~= 'done' and (where ~= 'unack' or ARGV[5] == '1')
  if not where and remove('ready', tag, id) == 1 then
    where = 'ready'
  elseif where and taken then
    remove(where, tag, id)
  end
  if where == 'pending' and scored(score) <= now then where = 'ready' end
end
if not where then
  where, id = 'gone', ''
elseif taken then
  if groups then
    -- include parts, dropparts
    dropparts(id, (partsof(envelope or '')))
  end
  erase(id, key)
  if limited and where == 'unack' then
    -- include freed
  end
end
remember(where .. ' ' .. id)
return {where, id}
