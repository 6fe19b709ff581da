-- Leases get a grace after consumers were cut off.
-- takes: heard, leased, grace, leaseUS, seen
-- gives: graceOver, inGrace, graceEnds
-- from time: now, us, whole
-- from call: mark

-- If this consumer was cut off for half a lease, other consumers were too, and may come back later. If no consumer called for two
-- thirds of a lease (an outage, a step of the clock), the consumers of leases that ran out meanwhile may live. So the leases that end
-- while they come back get a grace: they last until it is over. While a grace runs, it widens, to at most two leases after it began. When
-- it is over, another may begin. What had the one before is taken back meanwhile, so a consumer that is cut off again and again does not
-- stop recovery.
-- state.grace is '<begun> <upto> <before>': leases that end after before, and up to upto, have it.
local begun, upto, before = string.match(grace or '', '^(%d+) (%d+) (%d+)$')
begun, upto, before = whole(begun) or 0, whole(upto) or 0, whole(before) or 0
if begun > now then -- the clock was stepped back: this grace does not count, also if that time comes again
  begun, upto, before = 0, 0, 0
  mark('grace', '')
end
local function ends() return math.min(upto + math.floor(leaseUS * 3 / 4), begun + 2 * leaseUS) end
local lastCall = whole(seen) or 0 -- of any consumer
if lastCall > now then lastCall = 0 end
if now - heard > leaseUS / 2 or leased and leased <= now and now - lastCall > leaseUS * 2 / 3 then
  local back = now + math.min(math.max(math.floor(leaseUS / 2), 2000000), leaseUS) -- by then all have come back
  if ends() <= now then
    before = upto
    begun, upto = now, 0
  end
  if back <= begun + leaseUS * 3 / 2 then
    upto = math.max(upto, back)
    mark('grace', us(begun) .. ' ' .. us(upto) .. ' ' .. us(before))
  end
end
local graceEnds = ends()
local inGrace, graceOver = graceEnds > now and upto or -1, before -- leases up to the second had the grace before
