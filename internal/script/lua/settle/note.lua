-- What the outcomes of a call have done is noted for state. c is what they share (settle/scan.lua).
-- from time: us, whole, scored
-- from call: mark
-- from edit: noted

-- add(name, before, n) adds to a count of state; nil: nothing.
local function add(name, before, n)
  if n then mark(name, us((whole(before) or 0) + n)) end
end

-- note(c, …) notes all, and trims what came in. The arguments are fields of state as they were: holds, parts, changed,
-- overtaken, and counts. It returns how much garbage and how many done messages were deleted because there were too
-- many.
local function note(c, firstHold, groups, changed, overtaken, failed, garbage, superseded, kept)
  if c.sends then
    -- from put: noteall
    local big, total, before = unpack(redis.call('HMGET', KEYS.state, 'big', 'in:stored', 'in:followed'), 1, 3)
    noteall(big, total, groups, changed, overtaken)
    if whole(total) and noted.stored > 0 then mark('in:followed', us((whole(before) or 0) + noted.stored)) end
  end
  if (c.pause or 0) > 0 then
    -- from limits: throttle
    throttle(c.pause)
  end
  if c.holdEnds then
    firstHold = whole(firstHold) or 0
    if firstHold == 0 or c.holdEnds < firstHold then mark('holds', us(c.holdEnds)) end
  end
  add('failed', failed, c.failed)
  add('garbage', garbage, c.dead)
  add('superseded', superseded, c.replaced)
  add('kept', kept, c.ackedKept)
  if c.unkept then add('out:superseded', redis.call('HGET', KEYS.state, 'out:superseded'), c.unkept) end
  if not (c.dead or c.kept) then return 0, 0 end
  -- from settle/trim: trim
  local overflow, doneOverflow, trimmed = trim(c.dead or 0, c.garbageRoom, c.kept or 0, c.doneRoom or 0, c.clear)
  if c.kept then mark('done', us(scored(redis.call('ZRANGE', KEYS.done, 0, 0, 'WITHSCORES')[2]))) end
  if trimmed > 0 then add('out:trimmed', redis.call('HGET', KEYS.state, 'out:trimmed'), trimmed) end
  return overflow, doneOverflow
end
