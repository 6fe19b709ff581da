-- Leases get a grace after consumers were cut off.
--
-- If a consumer was cut off for half a lease, other consumers were too, and may come back later. If no consumer called
-- for two thirds of a lease (an outage, a step of the clock), the consumers of leases that ran out meanwhile may live.
-- So the leases that end while they come back get a grace: they last until it is over. While a grace runs, it widens,
-- to at most two leases after it began. When it is over, another may begin. What had the one before is taken back
-- meanwhile, so a consumer that is cut off again and again does not stop recovery.
--
-- state.grace is '<begun> <upto> <before>': leases that end after before, and up to upto, have it.
-- from time: now, us, whole

-- graceof(text, leaseUS) reads it: begun, upto, before, and when it ends. If it began after now, the clock was stepped
-- back, and it does not count.
local function graceof(text, leaseUS)
  local begun, upto, before = string.match(text or '', '^(%d+) (%d+) (%d+)$')
  begun, upto, before = whole(begun) or 0, whole(upto) or 0, whole(before) or 0
  if begun > now then begun, upto, before = 0, 0, 0 end
  return begun, upto, before, math.min(upto + math.floor(leaseUS * 3 / 4), begun + 2 * leaseUS)
end

-- newgrace(text, leaseUS, due) is what state.grace says now. If one is due, leases get it, if the one that runs can be
-- widened or is over.
local function newgrace(text, leaseUS, due)
  local begun, upto, before, ends = graceof(text, leaseUS)
  if begun == 0 then text = '' end
  if not due then return text end
  local back = now + math.min(math.max(math.floor(leaseUS / 2), 2000000), leaseUS) -- by then all have come back
  if ends <= now then
    before = upto
    begun, upto = now, 0
  end
  if back > begun + leaseUS * 3 / 2 then return text end
  return us(begun) .. ' ' .. us(math.max(upto, back)) .. ' ' .. us(before)
end
