-- look finds one message, wherever it is.
--
-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, done, result, holds, parts, waiting
-- ARGV: 1 'id' or 'key', 2 the id or the message key, 3 how many bytes are read of the message at most; '' or none: all
-- Returns {}: it is nowhere; or {now, id, state, at, envelope, fail record or '', result or '', missing, n, parts, others}
--       at: when it is due (pending), end of the lease (unack), next delivery (retry), time of death (garbage), until when it is kept
--       (done; after that it is nowhere), '0' (ready). A message in pending or retry that is due counts as ready.
--       missing: how many acks the message still waits for; '' if it has no countdown
--       parts: the n parts of a group but the first; '' for a part that is missing. If the message with its parts is larger than ARGV 3,
--       the envelope is a zero byte, 'large ' and the number of bytes, n is 0, and the key entry is believed.
--       others: the ids of the (further) groups that left the key (lib/group.lua), if a group is found by the key, or no message that
--       has it.
--       Or {now, id, 'hold', until when}: no live message has the key, and the message id, which was acked, keeps it taken.
-- Cost: O(log n), O(ready) if it is there, O(unack) if it is held, of 100,000 at most, and O(parts); by a key 1 more if a group has it or no message. Writes nothing.

-- from time: now, us, scored
-- from message: keyof
-- from group: partsof, partnames, weight, leftkey, left
-- from countdown: missingof
-- from record: tagof
-- from place: locate
-- from lease: leaseof
-- from keys: holdends
local most = tonumber(ARGV[3] or '')

-- look(id, key) is the reply for a message, and whether it may be a group; nil if it is nowhere, or neither has the key ('': any) nor
-- has left it.
local function look(id, key)
  local size = most and redis.call('HSTRLEN', KEYS.msg, id) or 0
  local envelope = most and size > most and '' or redis.call('HGET', KEYS.msg, id)
  if not envelope or key ~= '' and envelope ~= '' and keyof(envelope) ~= key and leftkey(envelope) ~= key then return nil end
  if most and envelope ~= '' then size = weight(envelope) end
  local large = most and size > most
  local record = redis.call('HGET', KEYS.fail, id)
  local tag = tagof(id, record)
  local state, at = locate(tag, id)
  if state == 'unack' then at = leaseof(tag) end
  at = scored(at)
  if (state == 'pending' or state == 'retry') and at <= now then state, at = 'ready', 0 end
  if not at then return nil end
  local result = state == 'done' and redis.call('HGET', KEYS.result, id)
  local n = large and 1 or partsof(envelope)
  local missing = missingof(id, envelope)
  local out = {us(now), id, state, us(at), large and '\0large ' .. us(size) or envelope, record or '', result or '',
    missing and us(missing) or '', math.max(n - 1, 0)}
  local values = n > 1 and redis.call('HMGET', KEYS.parts, unpack(partnames(id, n))) or {}
  for i = 1, n - 1 do out[9 + i] = values[i] or '' end
  return out, n > 0
end

local key = ARGV[2]
if ARGV[1] ~= 'key' then return (look(key, '')) or {} end
local holder = redis.call('HGET', KEYS.key, key)
local acked = holder and string.match(holder, '^acked:(.*)$')
local ends = acked and holdends(key)
local out, group
if holder and not ends then out, group = look(holder, key) end
if out and not group then return out end
for _, id in ipairs(left(key)) do
  if out then out[#out + 1] = id else out = look(id, key) end
end
return out or ends and {us(now), acked, 'hold', us(ends)} or {}
