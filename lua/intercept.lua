-- intercept takes a message out, wherever it is.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 msg, 7 fail, 8 key, 9 state
-- ARGV: 3 'id' or 'key', 4 the id or the caller's key
-- Returns {the state it was in}: 'gone', 'pending', 'ready', 'unack', 'retry' or 'garbage'. A message
--       whose due instant has come is ready, although it leaves pending only when it is handed out.
-- Cost: O(log n), and O(ready) if it is there; reads the envelope.
-- Keeps: invariants 1 and 6; reads every key first. A running handler notices when its lease is to be renewed.
local field = 'call:' .. ARGV[1]
local reply = recall(redis.call('HGET', KEYS[9], field))
if reply then return {reply} elseif reply == false then return stale end
redis.call('ZCARD', KEYS[1])
redis.call('LLEN', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[8])
local id, key = ARGV[4], ARGV[4]
if ARGV[3] == 'key' then id = redis.call('HGET', KEYS[8], key) end
local envelope = id and redis.call('HGET', KEYS[6], id)
local where = 'gone'
redis.call('ZREM', KEYS[3], '') -- the first write
if envelope then
  local failure = redis.call('HGET', KEYS[7], id)
  local n = failure and string.match(failure, '^(%d+) ') or '1'
  local tag = n == '1' and id or n .. ':' .. id
  local due = redis.call('ZSCORE', KEYS[1], tag)
  if redis.call('ZREM', KEYS[1], tag) == 1 then
    where = tonumber(due) <= now and 'ready' or 'pending'
  elseif redis.call('ZREM', KEYS[3], tag) == 1 then
    where = 'unack'
  elseif redis.call('ZREM', KEYS[4], tag) == 1 then
    where = 'retry'
  elseif redis.call('ZREM', KEYS[5], id) == 1 then
    where = 'garbage'
  elseif redis.call('LREM', KEYS[2], 1, tag) == 1 then
    where = 'ready'
  end
  if where ~= 'gone' then
    key = keyof(envelope, 18)
    if key ~= '' and redis.call('HGET', KEYS[8], key) == id then redis.call('HDEL', KEYS[8], key) end
    redis.call('HDEL', KEYS[6], id)
    redis.call('HDEL', KEYS[7], id)
  end
end
redis.call('HSET', KEYS[9], field, record(where))
return {where}
