-- look finds one message, wherever it is.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key
-- ARGV: 1 'id' or 'key', 2 the id or the caller's key
-- Returns {}: it is nowhere; or {now, id, state, at, envelope, fail record or ''}; at: due (pending), lease end
--       (unack), next delivery (retry), time of death (garbage), '0' (ready); what is due is ready.
-- Cost: O(log n), and O(ready) if it is there. Writes nothing.
local id = ARGV[2]
if ARGV[1] == 'key' then id = redis.call('HGET', KEYS.key, id) end
local envelope = id and redis.call('HGET', KEYS.msg, id)
if not envelope or ARGV[1] == 'key' and keyof(envelope, 18) ~= ARGV[2] then return {} end
local failure = redis.call('HGET', KEYS.fail, id)
local n = failure and string.match(failure, '^(%d+) ') or '1'
local tag = n == '1' and id or n .. ':' .. id
local state, at = 'pending', scored(redis.call('ZSCORE', KEYS.pending, tag))
if not at then state, at = 'retry', scored(redis.call('ZSCORE', KEYS.retry, tag)) end
if at and at <= now then state, at = 'ready', 0 end
if not at then state, at = 'unack', scored(redis.call('ZSCORE', KEYS.unack, tag)) end
if not at then state, at = 'garbage', scored(redis.call('ZSCORE', KEYS.garbage, id)) end
if not at and redis.call('LPOS', KEYS.ready, tag) then state, at = 'ready', 0 end
if not at then return {} end
return {us(now), id, state, us(at), envelope, failure or ''}
