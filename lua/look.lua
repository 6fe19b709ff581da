-- look finds one message, wherever it is.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, done, result, parts
-- ARGV: 1 'id' or 'key', 2 the id or the message key
-- Returns {}: it is nowhere; or {now, id, state, at, envelope, fail record or '', result or '', n, parts}; at: due (pending), lease
--       end (unack), next delivery (retry), time of death (garbage), until when it is kept (done; what is over is
--       nowhere), '0' (ready); what is due is ready.
--       parts: those n of a group but the first; '' for one that is missing.
-- Cost: O(log n), O(ready) if it is there, and O(parts). Writes nothing.

-- include head, score, envelope, locate, parts
local id = ARGV[2]
if ARGV[1] == 'key' then id = redis.call('HGET', KEYS.key, id) end
local envelope = id and redis.call('HGET', KEYS.msg, id)
if not envelope or ARGV[1] == 'key' and keyof(envelope) ~= ARGV[2] then return {} end
local record = redis.call('HGET', KEYS.fail, id)
local tag = tagof(id, record)
local state, at = locate(tag, id, '')
at = scored(at)
if (state == 'pending' or state == 'retry') and at <= now or not state and redis.call('LPOS', KEYS.ready, tag) then
  state, at = 'ready', 0
end
if not state then return {} end
local result = state == 'done' and redis.call('HGET', KEYS.result, id)
local n = partsof(envelope)
local out = {us(now), id, state, us(at), envelope, record or '', result or '', math.max(n - 1, 0)}
local values = n > 1 and redis.call('HMGET', KEYS.parts, unpack(partnames(id, n))) or {}
for i = 1, n - 1 do out[8 + i] = values[i] or '' end
return out
