-- What the call has done is counted.
-- takes: holdEnds, firstHold, acked, failed, dead, replaced, ackedKept, unkept, trimmed, ackedBefore, failedBefore, garbageBefore,
--        supersededBefore, keptBefore
-- from time: us, whole
-- from call: mark

local function count(name, before, n) if n > 0 then mark(name, us((whole(before) or 0) + n)) end end
if holdEnds then
  firstHold = whole(firstHold) or 0
  if firstHold == 0 or holdEnds < firstHold then mark('held', us(holdEnds)) end
end
count('out:acked', ackedBefore, acked)
count('failed', failedBefore, failed)
count('garbage', garbageBefore, dead)
count('superseded', supersededBefore, replaced)
count('kept', keptBefore, ackedKept)
if unkept > 0 then count('out:superseded', redis.call('HGET', KEYS.state, 'out:superseded'), unkept) end
if trimmed > 0 then count('out:trimmed', redis.call('HGET', KEYS.state, 'out:trimmed'), trimmed) end
