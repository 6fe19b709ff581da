-- steer moves or deletes messages, each wherever it waits, or only where list has found it.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, done, result, holds, parts, lanes, waiting
-- ARGV: 3 what to do:
--         'at'       make due at the instant ARGV 4
--         'by'       make due ARGV 4 us later
--         'requeue'  bring back from garbage, due at the instant ARGV 4, as if the message had never failed
--         'delete'   delete; 'cancel': also while it is being handled
--         'release'  end the hold of a message key
--         'garbage'  end the turn that a message has in its lane (lib/lane.lua), with the error in the place of the score
--         'last'     the same, but the message waits behind all of its lane that are due
--       4 us, 5 us by which each message is due later than the one before (at, requeue), 6 '': each target is an id; 'key': each is
--       a message key; else the structure in which each is a tag; 7 '1': lift the deadline of what has expired; then at most
--       500 pairs, with at most 1 MB: id or key and '', or tag and the score that list gave ('': any), and behind a blank the SHA-1 of
--       the envelope that it gave, if that may not have changed
-- Returns {now, a word for each target, or for the first of them: another call must change the others}
--       a word: the state in which the target was, if it was done; '!<state>' if that cannot be done in this state, 'gone' and 'unack'
--       among them ('!gone' also if it is not where list found it, or not as list found it); '=<id>', '=acked:<id>' if another message
--       has its key, or keeps it after its ack; '-<state>' if it would have expired when it is due, and ARGV 7 is not '1';
--       '~<state>' if it was to be due now and is due: it was done, and keeps its place; the same of 'last' if none
--       that is due waits behind it; 'done' of a hold.
--       Or the error DQLAYOUT, if ARGV 6 is a structure and the layout is not known: nothing was done.
-- Cost: at most 14 commands of O(log n) for each target, with a lane those of lib/enterlane.lua, O(ready) if it is there, O(parts) to delete it.
--       Reads the envelope. Its SHA-1, if that is given, takes about 3 ms a megabyte, and 1 us of a small one.
--       The place of a handler whose message is canceled is free at once.
-- Keeps: invariants 1, 3, 4, 6 and 9 of internal/check; reads every key first. The first write is a ZREM: a full
--       server lets the rest pass.

-- from time: now, us, whole
-- from call: field, STALE, recall, guard, mark, remember
-- from queue: missing, unknown
-- from place: takenOut
-- from edit: noted, LOOKS
-- from steer/target: release, steer
-- from steer/skip: skip
local what, bykey = ARGV[3], ARGV[6] == 'key'
local only = bykey and '' or ARGV[6]
local out = what == 'cancel' and 'out:canceled' or 'out:deleted'
local saved, armed, pause, layout, groups, limited, firstHold, canceled, garbage, outBefore =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'pause', 'layout', 'parts', 'limited', 'holds', 'canceled', 'garbage', out), 1, 10)
local reply, at = recall(saved)
if reply then return {at, reply} elseif reply == false then return {err = STALE} end
local refusal = missing(armed) or only ~= '' and unknown(layout) -- the layout matters to calls for many
if refusal then return refusal end
guard(redis.call('ZCARD', KEYS.pending), redis.call('LLEN', KEYS.ready), redis.call('ZCARD', KEYS.unack),
  redis.call('ZCARD', KEYS.retry), redis.call('ZCARD', KEYS.garbage), redis.call('HLEN', KEYS.msg),
  redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.wake),
  redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result), redis.call('ZCARD', KEYS.holds))
local laned = redis.call('ZCARD', KEYS.lanes) + redis.call('ZCARD', KEYS.waiting) > 0
local c = {
  what = what, arg = tonumber(ARGV[4]), step = tonumber(ARGV[5]), only = only, bykey = bykey, anew = ARGV[7] == '1',
  deletes = what == 'delete' or what == 'cancel',
  laned = laned, holds = (whole(firstHold) or 0) > 0, -- there may be lanes; some key has a hold
  nth = 0, deleted = 0, dead = 0, -- so many were moved, were deleted, went to garbage
}
if groups then
  guard(redis.call('HLEN', KEYS.parts))
  -- from group: dropall, leftkey, setleft
  c.drop, c.nameof, c.unlist = dropall, leftkey, setleft -- deletes parts; the key that a group has left
end
redis.call('ZREM', KEYS.unack, '') -- the first write

local change = (what == 'garbage' or what == 'last') and skip or steer
local words = {}
for i = 8, #ARGV, 2 do
  if noted.looked >= LOOKS then break end
  words[#words + 1] = what == 'release' and release(ARGV[i]) or change(c, i)
end
local said = table.concat(words, ' ')
if noted.first then
  -- from alarm: gate, sooner, arm
  local first = gate(noted.first, pause)
  if sooner(first, armed) then
    arm(first)
    armed = us(first)
  end
end
if c.dead > 0 then mark('garbage', us((whole(garbage) or 0) + c.dead)) end
if c.deleted > 0 then mark(out, us((whole(outBefore) or 0) + c.deleted)) end
if takenOut > 0 then
  mark('canceled', us(math.max(now, (whole(canceled) or 0) + 1)))
  -- from alarm: freed
  local putOff = limited and freed(limited, armed)
  if putOff then mark('limited', putOff) end
end
remember(said)
return {us(now), said}
