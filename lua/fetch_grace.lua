-- Part of fetch: who may be cut off still, and find back.
--
-- After a time in which this consumer was cut off for half a lease, others were too, and may find back later; after
-- two thirds of one without any consumer's call (an outage, a step of the clock) the holders of what ran out meanwhile
-- may live. So the leases that end while they find back are given a grace: those that end up to its `upto`, and after
-- that of the grace before, last until its `till`, half a lease longer at least. A lease is given one, once: so a consumer
-- that is cut off again and again keeps nobody's messages for long. A grace takes in more leases for a quarter of a
-- lease, then there is another: seven at most that are not over, and one that is, for what ended with it.
-- state.grace is '<upto> <till>' of each, the oldest first. More than GRACES bytes are another program's, and not read: nine of 33
-- bytes and blanks have 305, and of thousands of digits the pattern, which may begin anywhere, takes seconds.
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
if lastCall > now then -- the clock was stepped back: a grace of another time is none, also if that time comes again
  lastCall, graces, newest = 0, {}, NONE
  mark('grace', '')
end
if now - heard > leaseUS / 2 or leased and leased <= now and now - lastCall > leaseUS * 2 / 3 then
  local back = now + math.min(math.max(math.floor(leaseUS / 2), 2000000), leaseUS) -- by then all have found back
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
