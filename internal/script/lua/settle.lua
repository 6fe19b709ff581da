-- settle ends a batch of deliveries, each with its own outcome.
-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, wake, state, done, result, holds, parts, lanes, waiting
-- ARGV: 1, 2: lib/call.lua; 3 n, with '+' before it if the consumer fetches if there is more; 4 state.canceled as the fetches told it, the smallest; 5 how many leases; their names, and
--       how many of n each has; n tags of acked first deliveries without key and lane, by leases; of each other outcome a word and fields:
--         'ack'      lease, tag, id, key
--         'done'     lease, tag, id, key, number, counts, keep, result, room
--         'ready'    lease, tag, id, number, counts, error, failed
--         'garbage'  lease, tag, id, number, counts, error, failed, key, room
--         'retry'    lease, tag, id, number, counts, error, failed, delay
--         'throttle' the same: until that retry the queue hands out nothing, for an hour at most
--       and before that word what belongs to the outcome:
--         'hold'     us for which the key of an acked message stays taken
--         'group'    how many parts the handler had, if a group is acked; '0' of a message with a countdown that is no group
--         'lane'     its lane, as field 136 has it, if its turn ends; with 'retry' it enters the lane again. KEYS of lanes may be left out if
--                    no message of the call has a lane, and what follows has no policy and counts for nothing
--       and behind 'ack' and 'done' what is sent with it (lib/put.lua), then 'counts' and the key of the message for whose countdown it counts
--       key: '' for none; number: of the next delivery; counts: '<failures> <losses>'; error: '<delivery> <text>' and the errors of
--       the record before, '' if nothing is added to these; failed: '1' if the delivery failed; delay: us; keep: us for which the
--       message is kept; result: '' for none; room: how many done messages, or how much garbage, there may be, '0': any number. What follows is sent if the ack is not void.
-- Returns {now, '<overflow>;<doneOverflow>;<void>;<ended>;<stopped>;<more>;<answers>'}
--       overflow, doneOverflow: how many garbage and done messages were deleted because there were too many
--       void: '' or a list '<i> ' of outcomes (from 1, acks before records) that changed nothing, because another delivery has begun or the
--       message is gone. After a failover the server may have forgotten the fetch, and the message waits again where it was before (pending,
--       retry). Its ack still counts. Exceptions: a group, and a message with a key if a send has changed a waiting message (state.changed),
--       because both may be different since. An ack of a message that another program has deleted may be missing.
--       ended: '' or a list '<i> ' of outcomes, as in void, whose deliveries were superseded: their messages have ended (lib/record.lua)
--       stopped: the first outcome that was not settled, because the call would have read over half a megabyte, or has looked at 1,000
--       turns: another call must settle the rest; with '!' behind it if its sends would change over 4 MB, which no call does. '0': none
--       more: '1' if the call gave a turn to a message that is due, or freed a place that one waits for, and nobody else was woken for it
--       answers: '' or a list '<i><answer> ' of the sends (from 1) that were not stored, with the answers of put
-- Cost: 8 commands for any number of plain acks of living leases, if no held message was canceled; else 3 more for all, 1 for each lease,
--       and at most 2 for each ack. 8 more for all other outcomes together, and O(log n) for each. More: 6 if there is too much garbage, of
--       at most 500 messages; 4 if anything is done, 7 if there is too much of that, up to 14 if some was acked just now (at most 100
--       messages more than came in go, and the records of up to 4 times as many are read); for each send as in put, 2 for all, 3 if any has
--       a key, 5 if any has a policy; 3 for each ack that counts, 4 more for the last, 2 for all; 1 for each ack whose key stays taken, 1
--       for all; if anything was superseded 1 for each record, 2 for all, 4 for each that was, 1 if any is deleted; for each ack of a group O(parts) and 1, 2
--       more if it has left its key, 1 for all; 2 if a message that is due waits for a place; 1 to throttle;
--       2 for each turn that ends, 5 more if it is given on (lib/enterlane.lua), 3 for all.
-- Keeps: invariants 1, 3, 4, 6 and 9 of internal/check, if each delivery is settled once. A full server lets it pass, as it begins with HDEL or ZREM.

-- from time: now, us, whole
-- from call: field, STALE, recall, guard, mark, remember
-- from settle/leases: leftof, release
local plain, fetches, leases = tonumber(ARGV[3]), string.sub(ARGV[3], 1, 1) == '+', tonumber(ARGV[5])
local before = 5 + 2 * leases -- so many ARGV stand before the tags of the plain acks
local at = before + plain + 1 -- where the other outcomes begin

local state
if ARGV[at] then
  state = redis.call('HMGET', KEYS.state, field, 'armed', 'limited', 'canceled', 'out:acked', 'holds', 'parts', 'changed', 'overtaken', 'failed',
    'garbage', 'superseded', 'kept')
else
  state = redis.call('HMGET', KEYS.state, field, 'armed', 'limited', 'canceled', 'out:acked')
end
local saved, armed, limited, canceled, ackedBefore = unpack(state, 1, 5)
local reply, called = recall(saved)
if reply then return {called, reply} end
if reply == false then return {err = STALE} end
guard(redis.call('ZCARD', KEYS.unack))
if limited then guard(redis.call('ZCARD', KEYS.wake)) end

-- If no held message was canceled since the fetches, and no lease was parted, all that was not settled of a living lease is held.
local names, left, settled, alive = leftof(leases)
local known, listed = (whole(canceled) or 0) == tonumber(ARGV[4]), nil -- listed: of which tags lists must be asked
if not known then
  -- from settle/leases: lists
  listed = lists
end
if plain == 0 or not (alive and known) then guard(redis.call('HLEN', KEYS.msg)) end -- else that is written first
if not (alive and known) then guard(redis.call('ZCARD', KEYS.pending), redis.call('ZCARD', KEYS.retry)) end

local c -- what the other outcomes share; nil if there are none
if ARGV[at] then
  -- from settle/scan: scan
  c = scan(at, state, left, settled, listed)
end

local acked, void = plain, ''
if plain > 0 and alive and known then
  acked = redis.call('HDEL', KEYS.msg, unpack(ARGV, before + 1, before + plain))
  -- If some were gone, deleted by another program or acked by a call that the server forgot, nobody knows of which leases: the counts stay, and
  -- keep or the end of a lease sets that right.
  for i = 1, acked == plain and leases or 0 do settled[i] = tonumber(ARGV[5 + leases + i]) end
elseif plain > 0 then
  -- from settle/acks: ackeach
  acked, void = ackeach(plain, before, leases, left, settled, listed)
end

local overflow, doneOverflow, answers, ended, stopped = '0', '0', '', '', '0'
local first, more = nil, false -- the first instant at which any message is due that was not
if c then
  -- from settle/outcomes: outcomes
  c.nth, c.acked, c.void = plain, acked, void
  answers, stopped, overflow, doneOverflow, first, more = outcomes(c, at, state)
  acked, void, ended = c.acked, c.void, c.ended
  more = fetches and (limited or '') == '' and more
end
release(leases, names, left, settled)
if acked > 0 then mark('out:acked', us((whole(ackedBefore) or 0) + acked)) end

if first then
  -- from alarm: sooner, arm
  if sooner(first, armed) then
    if more then redis.call('ZREM', KEYS.wake, 'w') mark('armed', us(first)) else arm(first) end
    armed = us(first)
  end
end
if limited then
  -- from alarm: freed
  local putOff, goes = freed(limited, armed, fetches)
  if putOff then mark('limited', putOff) end
  more = more or goes
end
reply = overflow .. ';' .. doneOverflow .. ';' .. void .. ';' .. ended .. ';' .. stopped .. ';' .. (more and '1' or '0') .. ';' .. answers
remember(reply)
return {us(now), reply}
