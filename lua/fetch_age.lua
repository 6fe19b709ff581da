-- Part of fetch: whether anything may be deleted by age. Garbage, what is done, holds of keys, old history and old callers are: what
-- deletes any of these looks at byAge and byPages first.
--
-- A clock that is wrong for a moment must not delete what is to be kept for a week. The clock was stepped, perhaps, if more than
-- an hour lies between this call and the last one of this consumer, which calls every few seconds; for a new consumer, the last call
-- of any. Then nothing is deleted by age for a minute, and for an hour after that no more than a page by each call. state.aging is
-- when the minute is over. For a new consumer there is no second minute within that hour and the first call after it: a queue
-- that is drained now and then would never be rid of anything.
local byAge, byPages -- something may be deleted by age; no call may follow at once to delete more
do
  local HOUR, MINUTE = 3600000000, 60000000
  local before = whole(aging) or 0
  local agingAt, last = before, now
  if saved then
    last = heard
  elseif seen and before == 0 then
    last = whole(seen) or 0
  end
  if math.abs(now - last) > HOUR or before > now + MINUTE then
    agingAt = now + MINUTE
  elseif before ~= 0 and now - before > HOUR then
    agingAt = 0
  end
  if agingAt ~= before then mark('aging', us(agingAt)) end
  byAge, byPages = agingAt <= now, agingAt ~= 0
end
