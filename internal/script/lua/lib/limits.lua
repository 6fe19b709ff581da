-- Limits of a queue.
-- from time: now, whole

-- throttledUntil(text) is until when a Throttle stops hand-outs, by state.throttled; 0: there is no Throttle. If it began after now, the
-- clock was stepped back since, and the Throttle counts no more.
local function throttledUntil(text)
  local said, till = string.match(text or '', '^(%d+) (%d+)$')
  said, till = whole(said), whole(till)
  if not till or said > now or till - said > 3600000000 or till <= now then return 0 end
  return till
end
