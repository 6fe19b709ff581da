-- look finds one message, wherever it is.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 msg, 7 fail, 8 key
-- ARGV: 1 'id' or 'key', 2 the id or the caller's key
-- Returns {}: it is nowhere; or {now, id, state, at, envelope, fail record or ''}; at: due (pending), lease end
--       (unack), next delivery (retry), time of death (garbage), '0' (ready); what is due is ready.
-- Cost: O(log n), and O(ready) if it is there. Writes nothing.
local id = ARGV[2]
if ARGV[1] == 'key' then id = redis.call('HGET', KEYS[8], id) end
local envelope = id and redis.call('HGET', KEYS[6], id)
if not envelope or ARGV[1] == 'key' and keyof(envelope, 18) ~= ARGV[2] then return {} end
local failure = redis.call('HGET', KEYS[7], id)
local n = failure and string.match(failure, '^(%d+) ') or '1'
local tag = n == '1' and id or n .. ':' .. id
local state, at = 'pending', scored(redis.call('ZSCORE', KEYS[1], tag))
if not at then state, at = 'retry', scored(redis.call('ZSCORE', KEYS[4], tag)) end
if at and at <= now then state, at = 'ready', 0 end
if not at then state, at = 'unack', scored(redis.call('ZSCORE', KEYS[3], tag)) end
if not at then state, at = 'garbage', scored(redis.call('ZSCORE', KEYS[5], id)) end
if not at and redis.call('LPOS', KEYS[2], tag) then state, at = 'ready', 0 end
if not at then return {} end
return {us(now), id, state, us(at), envelope, failure or ''}
