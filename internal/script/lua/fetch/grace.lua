-- Leases get a grace after consumers were cut off.
-- takes: heard, leased, grace, leaseUS, seen
-- gives: graces, graceOver, inGrace
-- from time: now, us, whole
-- from call: mark

-- If this consumer was cut off for half a lease, other consumers were too, and may come back later. If no consumer called for two
-- thirds of a lease (an outage, a step of the clock), the consumers of leases that ran out meanwhile may live. So the leases that end
-- while they come back get a grace. A lease that ends up to `upto`, and after the `upto` of the grace before, lasts until `till`, at
-- least half a lease longer. A lease gets one grace, so a consumer that is cut off again and again delays a recovery only once. A grace
-- takes in more leases for a quarter of a lease, then another begins. At most seven are not over; one more is kept for the leases that
-- end with it.
-- state.grace is '<upto> <till>' of each grace, the oldest first. A field of more than GRACES bytes is another program's, and is not
-- read: nine graces have 305 bytes, and of thousands of digits the pattern would take seconds, because it may begin anywhere.
local GRACES = 320
if grace and #grace > GRACES then grace = nil end
local NONE = {upto = 0, till = 0}
local graces, newest = {}, NONE
for upto, till in string.gmatch(grace or '', '(%d+) (%d+)') do
  upto, till = whole(upto), whole(till)
  if #graces < 8 and upto > newest.upto and till >= upto and till >= newest.till and till <= now + 2 * leaseUS then
    newest = {upto = upto, till = till}
    graces[#graces + 1] = newest
  end
end
while graces[2] and graces[2].till <= now do table.remove(graces, 1) end
local lastCall = whole(seen) or 0 -- of any consumer
if lastCall > now then -- the clock was stepped back: graces of another time do not count, also if that time comes again
  lastCall, graces, newest = 0, {}, NONE
  mark('grace', '')
end
if now - heard > leaseUS / 2 or leased and leased <= now and now - lastCall > leaseUS * 2 / 3 then
  local back = now + math.min(math.max(math.floor(leaseUS / 2), 2000000), leaseUS) -- by then all have come back
  if graces[1] and back + leaseUS / 2 <= newest.till then
    newest.upto = math.max(newest.upto, back)
  else
    newest = {upto = math.max(back, newest.upto + 1), till = math.max(back + math.floor(leaseUS * 3 / 4), newest.till)}
    graces[#graces + 1] = newest
  end
  local texts = {}
  for i = 1, #graces do texts[i] = us(graces[i].upto) .. ' ' .. us(graces[i].till) end
  mark('grace', table.concat(texts, ' '))
end
local graceOver, inGrace = -1, -1 -- leases up to the first had a grace that is over; up to the second one that is not
if graces[1] and graces[1].till <= now then graceOver = graces[1].upto end
if newest.till > now then inGrace = newest.upto end
