-- Limits of a queue, and handlers that run on. If the concurrency of the queue is bounded, a handler that runs on after its delivery
-- has ended keeps its place: the member 'overrun:<tag>' of unack, with a lease that its process renews.
-- from time: now, whole

local OVERRUN = 'overrun:'

-- placesOf(limits, override) is how many places the queue has, by these fields of state; 0: any number.
local function placesOf(limits, override)
  local function fourth(text) return whole(string.match(text or '', '^%d+ %d+ %d+ (%d+)')) or 0 end
  return fourth(override) > 0 and fourth(override) or fourth(limits)
end

-- throttledUntil(text) is until when a Throttle stops hand-outs, by state.throttled; 0: there is no Throttle. If it began after now, the
-- clock was stepped back since, and the Throttle counts no more.
local function throttledUntil(text)
  local said, till = string.match(text or '', '^(%d+) (%d+)$')
  said, till = whole(said), whole(till)
  if not till or said > now or till - said > 3600000000 or till <= now then return 0 end
  return till
end
