-- tick does at intervals what is to be done once for all consumers of a queue: it takes back the deliveries of dead consumers, deletes old
-- garbage, done messages and holds, gives turns in lanes that were forgotten, and moves counts to history. A fetch says which consumer calls it.
--
-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, wake, state, history, done, result, holds, parts, lanes, waiting
-- ARGV: 1 caller, 2 '1' if this consumer has ticked before, 3 a random number from 1 to 2^31-2, 4 lease us,
--       5 losses in a row that make a message poison, 6 age us at which garbage is deleted (0: never), 7 how many messages garbage may hold
--       (0: any number), 8 poison text, 9 bytes of messages that the reply may hold
-- Returns {now, more, lost, overflow, superseded, #dead, #missing, dead, missing, parts}
--       more: 1 if another call has more to do now
--       lost: leases that ran out; overflow: garbage deleted because there was too much
--       superseded: how many messages ended because their deliveries were superseded (lib/record.lua) and then lost
--       dead: id, envelope ('' if there is no room for it) and fail record of each message that became poison
--       missing: of each message with a countdown among the dead: which one, from -1 down, and how many acks it waits for
--       parts: of each group among the dead: which one, how many parts it has but the first, and these; 0 and none if any is missing
-- Cost: 18 commands. More: 3 for each lease that is over, at most 100, and at most 3 for each of its tags, at most 500, more for poison;
--       2 for each cause for which messages are deleted; 3 if anything was counted, 5 once an hour; every ten minutes a page of callers and lanes
--       a call. It has no number, because each thing is done only if it is still to be done: a call may come twice or late.
-- Keeps: invariants 1, 3, 4, 6 and 9 of internal/check. Reads first, then a ZREM as the first write: a full server lets the rest pass.

-- from time: now, us
-- from call: mark, marks
-- from alarm: gate, sooner, arm, freed
-- from edit: noted
-- from tick/read: read
-- from tick/reclaim: reclaim
-- from tick/trim: trim, freeholds
-- from tick/sweep: sweep
-- from tick/history: addhistory

local c = read()
reclaim(c)
trim(c)
freeholds(c)
sweep(c)
addhistory(c)
local first = c.first
if noted.first and (not first or noted.first < first) then first = noted.first end
if first then
  first = gate(first, c.pause)
  if sooner(first, c.armed) then
    arm(first)
    c.armed = us(first)
  end
end
if c.limited and c.ended then
  local putOff = freed(c.limited, c.armed)
  if putOff then mark('limited', putOff) end
end
mark('ticked', us((c.more or c.sweeping) and now - 20000000 or now)) -- the next fetch asks for another tick if there is more
redis.call('HSET', KEYS.state, unpack(marks))

local out = {us(now), c.more and 1 or 0, c.lost, c.overflow, c.replaced, #c.dead / 3, #c.missing / 2}
for _, list in ipairs({c.dead, c.missing, c.parts}) do
  for i = 1, #list do out[#out + 1] = list[i] end
end
return out
