-- intercept takes a message out, wherever it is; one that is being handled only if ARGV 5 says so.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 msg, 7 fail, 8 key, 9 state
-- ARGV: 3 'id' or 'key', 4 the id or the caller's key, 5 '1': also while it is being handled
-- Returns {the state it was in, its id}: 'gone', 'pending', 'ready', 'unack' (it stays, unless ARGV 5 says so),
--       'retry' or 'garbage'; the id is '' if it is gone. A message whose due instant has come is ready, although
--       it leaves pending only when it is handed out.
-- Cost: O(log n), and O(ready) if it is there, which is 2 ms in 50,000; it reads the envelope if any message has a key.
-- Keeps: invariants 1 and 6; reads every key first. A running handler notices when its lease is to be renewed.
local field = 'call:' .. ARGV[1]
local reply = recall(redis.call('HGET', KEYS[9], field))
if reply then
  local where, id = string.match(reply, '^(%a+) (.*)$')
  return {where or reply, id or ''}
elseif reply == false then
  return stale
end
redis.call('ZCARD', KEYS[1])
redis.call('LLEN', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[6])
local keyed = redis.call('HLEN', KEYS[8]) > 0
local id, key = ARGV[4], ''
if ARGV[3] == 'key' then id = redis.call('HGET', KEYS[8], ARGV[4]) end
local envelope = id and keyed and redis.call('HGET', KEYS[6], id)
if envelope then key = keyof(envelope, 18) end
local found = id and redis.call('HEXISTS', KEYS[6], id) == 1
if ARGV[3] == 'key' and key ~= ARGV[4] then found = false end -- somebody else wrote that entry
local failure = found and redis.call('HGET', KEYS[7], id)
redis.call('ZREM', KEYS[3], '') -- the first write

local where, taken = 'gone', true
if found then
  local n = failure and string.match(failure, '^(%d+) ') or '1'
  local tag = n == '1' and id or n .. ':' .. id
  local due = redis.call('ZSCORE', KEYS[1], tag)
  if redis.call('ZREM', KEYS[1], tag) == 1 then
    where = scored(due) <= now and 'ready' or 'pending'
  elseif redis.call('ZSCORE', KEYS[3], tag) then
    where, taken = 'unack', ARGV[5] == '1'
    if taken then redis.call('ZREM', KEYS[3], tag) end
  elseif redis.call('ZREM', KEYS[4], tag) == 1 then
    where = 'retry'
  elseif redis.call('ZREM', KEYS[5], id) == 1 then
    where = 'garbage'
  elseif redis.call('LREM', KEYS[2], 1, tag) == 1 then
    where = 'ready'
  end
end
if where == 'gone' then
  id = ''
elseif taken then
  if key ~= '' and redis.call('HGET', KEYS[8], key) == id then redis.call('HDEL', KEYS[8], key) end
  redis.call('HDEL', KEYS[6], id)
  redis.call('HDEL', KEYS[7], id)
end
redis.call('HSET', KEYS[9], field, record(where .. ' ' .. id))
return {where, id}
