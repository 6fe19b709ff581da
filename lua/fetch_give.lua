-- The deliveries go out, part of fetch.
local HEAD = 14
local out, fails, n = {}, {}, 0 -- the reply; deliveries in it
for i = 1, HEAD do out[i] = 0 end
tags = {}
local function give(tag, envelope)
  n = n + 1
  tags[n] = tag
  out[HEAD + 2 * n - 1], out[HEAD + 2 * n] = tag, envelope
end
if keep > 0 then
  local found = redis.call('HMGET', KEYS.msg, unpack(ids, 1, keep))
  local records = numbered[1] and redis.call('HMGET', KEYS.fail, unpack(numbered)) or {}
  if fromready > 0 then redis.call('LTRIM', KEYS.ready, math.min(fromready, keep), -1) end
  if not handed and keep > fromready then redis.call('ZREM', KEYS.retry, unpack(some, fromready + 1, keep)) end
  local j = 0
  for i = 1, keep do
    local tag, record = some[i], nil
    if split(tag) > 1 then
      j = j + 1
      record = records[j] or ''
    end
    local aside = false
    if not handed and islast(record) then
      -- A consumer has one message on its last chance at a time: the one that kills its
      -- consumers does so alone, and none of those lost with it dies of it.
      aside = wait
      wait = true
    end
    if not found[i] then -- somebody else deleted it: drop what is left of the message
      dropped = dropped + 1
      redis.call('HDEL', KEYS.fail, ids[i])
      if handed then redis.call('ZREM', KEYS.unack, tag) end
    elseif aside then
      redis.call('ZADD', KEYS.retry, later(), tag)
    else
      give(tag, found[i])
      fails[n] = record or ''
    end
  end
end
if pending[1] then
  local found = redis.call('HMGET', KEYS.msg, unpack(pending))
  redis.call('ZREM', KEYS.pending, unpack(pending))
  for i = 1, #pending do
    if found[i] then
      give(pending[i], found[i])
    else
      dropped = dropped + 1
      redis.call('HDEL', KEYS.fail, pending[i])
    end
  end
end
if tags[1] and not handed then reply = lend(tags) end
