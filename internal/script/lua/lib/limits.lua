-- Limits of a queue.
-- from time: now, us, whole
-- from call: mark

-- throttledUntil(text) is until when a Throttle stops hand-outs, by state.throttled; 0: there is no Throttle. If it
-- began after now, the clock was stepped back since, and the Throttle counts no more.
local function throttledUntil(text)
  local said, till = string.match(text or '', '^(%d+) (%d+)$')
  said, till = whole(said), whole(till)
  if not till or said > now or till - said > 3600000000 or till <= now then return 0 end
  return till
end

-- throttle(most) stops hand-outs for so many us, whether the queue has limits or not (fetch/limit.lua).
local function throttle(most)
  local limits, throttled = unpack(redis.call('HMGET', KEYS.state, 'limits', 'throttled'), 1, 2)
  local ends = now + math.min(most, 3600000000)
  if ends > throttledUntil(throttled) then mark('throttled', us(now) .. ' ' .. us(ends)) end
  if not limits then mark('limits', '') end
end
