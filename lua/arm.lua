-- Shared by the scripts that set the alarm: the marker 'w' in wake, which wakes one idle consumer at the instant of its
-- score. state.armed is the instant for which it was set last; 0: none.

-- gate(due, paused) is when what is due at an instant may be handed out: not before the end of a pause (state.pause).
local function gate(due, paused) return math.max(due, whole(paused) or 0) end

-- sooner(due, before) says whether the alarm is to be set for an instant: before (state.armed) it was not set, or for a
-- later one.
local function sooner(due, before)
  before = whole(before) or 0
  return before == 0 or due < before
end

-- arm(due) sets the alarm.
local function arm(due)
  redis.call('ZADD', KEYS.wake, us(due), 'w')
  mark('armed', us(due))
end
