-- look finds one message, wherever it is.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 msg, 7 fail, 8 key, 9 consumers
-- ARGV: 1 'id' or 'key', 2 the id or the caller's key
-- Returns {}: it is nowhere; or {now, id, state, at, envelope, fail record or '', then, if it is held, what each
--       consumer said of itself: its name, its words}; at: due (pending), lease end (unack), next delivery
--       (retry), time of death (garbage), '0' (ready); what is due is ready.
-- Cost: O(log n), and O(ready) if it is there; O(consumers) if it is held. Writes nothing.
local id = ARGV[2]
if ARGV[1] == 'key' then id = redis.call('HGET', KEYS[8], id) end
local envelope = id and redis.call('HGET', KEYS[6], id)
if not envelope then return {} end
local failure = redis.call('HGET', KEYS[7], id)
local n = failure and string.match(failure, '^(%d+) ') or '1'
local tag = n == '1' and id or n .. ':' .. id
local found = {us(now), id, 'gone', '0', envelope, failure or ''}
local at = redis.call('ZSCORE', KEYS[1], tag)
if at then
  found[3] = 'pending'
else
  at = redis.call('ZSCORE', KEYS[4], tag)
  if at then found[3] = 'retry' end
end
if at and tonumber(at) <= now then
  found[3] = 'ready'
elseif at then
  found[4] = us(tonumber(at))
else
  at = redis.call('ZSCORE', KEYS[3], tag)
  local died = redis.call('ZSCORE', KEYS[5], id)
  if at then
    found[3], found[4] = 'unack', us(tonumber(at))
    for _, part in ipairs(redis.call('HGETALL', KEYS[9])) do found[#found + 1] = part end
  elseif died then
    found[3], found[4] = 'garbage', us(tonumber(died))
  elseif redis.call('LPOS', KEYS[2], tag) then
    found[3] = 'ready'
  else
    return {}
  end
end
return found
