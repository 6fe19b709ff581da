-- repair mends what doctor found, each thing only if it is still wrong. A call may be sent again, because what is mended is not wrong
-- any more.
--
-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, wake, state, done, result, holds, parts, lanes, waiting
-- ARGV: up to 100 pairs of a word and what it is about:
--         'pending' 'ready' 'retry' 'waiting' 'garbage' 'done'   a tag without an envelope: drop it
--         'unack'    a member of unack without a list in lease: drop it
--         'lease'    a field of lease whose lease is not in unack: delete the fields of that lease
--         'key'      a message key that no live message has: free it, unless it has a hold
--         'place'    an id whose envelope is in no structure, and that no lease holds: bring the message back, into its lane
--         'member'   a member of lanes that is none of a live message: delete it, and give on its turn. One with another score than 0
--                    gets that first, in any call
--         'laned'    the id of a live message that has no member in lanes: let it enter its lane. One that is ready or held has a turn then.
--                    One that waits and has no lane, or cannot be read, waits no more
--         'lane'     a lane: give turns that are free, and take back those that are too many, unless they have begun
--         'record'   an id whose fail record belongs to no message: delete the record. Or a tag that waits, while the record of its message
--                    names a later delivery, so that nobody could settle this one: drop the tag, if the message is dead, or if the later
--                    delivery waits or is held; else set the record to this delivery
--         'result'   an id whose result belongs to no done message: delete the result
--         'part'     a field of parts whose message is gone: delete the field
--         'list'     a message key: take out of its list what is no live group that has left the key
--         'listed'   the id of a live group that has left its key: list the group by that key
--         'alarm'    a member of wake: set it to the armed instant, or delete it
-- Returns a word for each pair, or for the first of them, if these needed many turns of lanes: 'done'; 'sound': it was not wrong any more;
--       'garbage': the message was brought back to garbage, because another live message has its key, or an acked one keeps it taken.
--       Or the error DQLAYOUT, if state.layout is not 1: nothing was done.
-- Cost: at most 20 commands of O(log n) for each pair, with a lane those of lib/enterlane.lua, and O(ready) if its message may be there. With a
--       'place' or 'laned', also all that leases list.
-- Keeps: every invariant that holds before. Reads every key first; the first write is a ZREM: a full server lets the rest pass.

-- from time: us, whole
-- from alarm: gate, sooner
-- from queue: unknown
-- from edit: noted, LOOKS
-- from leavelane: rescore
-- from repair/lanes: mendlanes
-- from repair/place: mendstructures, mendmessages
-- from repair/groups: mendgroups
local armed, pause, layout = unpack(redis.call('HMGET', KEYS.state, 'armed', 'pause', 'layout'), 1, 3)
local alarm = whole(armed) or 0
local refusal = unknown(layout)
if refusal then return refusal end -- messages may lie where this script does not look
redis.call('ZCARD', KEYS.pending)
redis.call('LLEN', KEYS.ready)
redis.call('ZCARD', KEYS.unack)
redis.call('HLEN', KEYS.lease)
redis.call('ZCARD', KEYS.retry)
redis.call('ZCARD', KEYS.garbage)
redis.call('HLEN', KEYS.msg)
redis.call('HLEN', KEYS.fail)
redis.call('HLEN', KEYS.key)
redis.call('ZCARD', KEYS.wake)
redis.call('ZCARD', KEYS.done)
redis.call('HLEN', KEYS.result)
redis.call('ZCARD', KEYS.holds)
redis.call('HLEN', KEYS.parts)
redis.call('ZCARD', KEYS.lanes)
redis.call('ZCARD', KEYS.waiting)
redis.call('ZREM', KEYS.unack, '') -- the first write

rescore(1000)

local mend = {} -- by word
mendstructures(mend)
mendgroups(mend)
mendmessages(mend)
mendlanes(mend)

function mend.result(id)
  if redis.call('ZSCORE', KEYS.done, id) or redis.call('HDEL', KEYS.result, id) == 0 then return 'sound' end
  return 'done'
end

function mend.alarm(member)
  local score = redis.call('ZSCORE', KEYS.wake, member)
  if not score or member == 'w' and tonumber(score) == alarm then return 'sound' end
  if member == 'w' and alarm > 0 then
    redis.call('ZADD', KEYS.wake, us(alarm), 'w')
  else
    redis.call('ZREM', KEYS.wake, member)
  end
  return 'done'
end

local words = {}
for i = 1, #ARGV, 2 do
  if noted.looked >= LOOKS then break end
  words[#words + 1] = mend[ARGV[i]](ARGV[i + 1])
end
if noted.first then -- when any of the messages that were brought back is due
  local first = gate(noted.first, pause)
  if sooner(first, armed) then
    redis.call('ZADD', KEYS.wake, us(first), 'w')
    redis.call('HSET', KEYS.state, 'armed', us(first))
  end
end
return words
