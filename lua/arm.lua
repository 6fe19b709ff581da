-- Shared by the scripts that set the alarm: the marker 'w' in wake, which wakes one idle consumer at the instant of its
-- score. state.armed is the instant for which it was set last; 0: none.

-- gate(at, pause) is when what is due at an instant may be handed out: not before the end of a pause (state.pause).
local function gate(at, pause) return math.max(at, whole(pause) or 0) end

-- sooner(at, armed) says whether the alarm is to be set for an instant: it is not set (state.armed), or for a later one.
local function sooner(at, armed)
  armed = whole(armed) or 0
  return armed == 0 or at < armed
end

-- arm(at) sets the alarm.
local function arm(at)
  redis.call('ZADD', KEYS.wake, us(at), 'w')
  mark('armed', us(at))
end
