-- Shared by the scripts that a Throttle concerns: throttledUntil(text) is until when nothing is handed out, by state.throttled; 0: it
-- may be. What was said after now was said before the clock was stepped back.
local function throttledUntil(text)
  local said, till = string.match(text or '', '^(%d+) (%d+)$')
  said, till = whole(said), whole(till)
  if not till or said > now or till - said > 3600000000 or till <= now then return 0 end
  return till
end
