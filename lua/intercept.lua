-- intercept takes a message out, wherever it is; one that is being handled only if ARGV 5 says so.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, state
-- ARGV: 3 'id' or 'key', 4 the id or the caller's key, 5 '1': also while it is being handled
-- Returns {the state it was in, its id}: 'gone', 'pending', 'ready', 'unack' (it stays, unless ARGV 5 says so),
--       'retry' or 'garbage'; the id is '' if it is gone. A message whose due instant has come is ready, although
--       it leaves pending only when it is handed out.
-- Cost: O(log n), and O(ready) if it is there, which is 2 ms in 50,000; it reads the envelope if any message has a key.
-- Keeps: invariants 1 and 6; reads every key first. A running handler notices when its lease is to be renewed.
local field = 'call:' .. ARGV[1]
local reply = recall(redis.call('HGET', KEYS.state, field))
if reply then
  local where, id = string.match(reply, '^(%a+) (.*)$')
  return {where or reply, id or ''}
elseif reply == false then
  return stale
end
redis.call('ZCARD', KEYS.pending)
redis.call('LLEN', KEYS.ready)
redis.call('ZCARD', KEYS.unack)
redis.call('ZCARD', KEYS.retry)
redis.call('ZCARD', KEYS.garbage)
redis.call('HLEN', KEYS.msg)
local keyed = redis.call('HLEN', KEYS.key) > 0
local id, key = ARGV[4], ''
if ARGV[3] == 'key' then id = redis.call('HGET', KEYS.key, ARGV[4]) end
local envelope = id and keyed and redis.call('HGET', KEYS.msg, id)
if envelope then key = keyof(envelope, 18) end
local found = id and redis.call('HEXISTS', KEYS.msg, id) == 1
if ARGV[3] == 'key' and key ~= ARGV[4] then found = false end -- somebody else wrote that entry
local failure = found and redis.call('HGET', KEYS.fail, id)
redis.call('ZREM', KEYS.unack, '') -- the first write

local where, taken = 'gone', true
if found then
  local n = failure and string.match(failure, '^(%d+) ') or '1'
  local tag = n == '1' and id or n .. ':' .. id
  local due = redis.call('ZSCORE', KEYS.pending, tag)
  if redis.call('ZREM', KEYS.pending, tag) == 1 then
    where = scored(due) <= now and 'ready' or 'pending'
  elseif redis.call('ZSCORE', KEYS.unack, tag) then
    where, taken = 'unack', ARGV[5] == '1'
    if taken then redis.call('ZREM', KEYS.unack, tag) end
  elseif redis.call('ZREM', KEYS.retry, tag) == 1 then
    where = 'retry'
  elseif redis.call('ZREM', KEYS.garbage, id) == 1 then
    where = 'garbage'
  elseif redis.call('LREM', KEYS.ready, 1, tag) == 1 then
    where = 'ready'
  end
end
if where == 'gone' then
  id = ''
elseif taken then
  if key ~= '' and redis.call('HGET', KEYS.key, key) == id then redis.call('HDEL', KEYS.key, key) end
  redis.call('HDEL', KEYS.msg, id)
  redis.call('HDEL', KEYS.fail, id)
end
redis.call('HSET', KEYS.state, field, record(where .. ' ' .. id))
return {where, id}
