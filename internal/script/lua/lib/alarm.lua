-- The alarm: the marker 'w' in wake, which wakes one idle consumer at the instant of its score: idle consumers wait for
-- it by BZPOPMIN, and the one that gets it sleeps until then, and fetches. state.armed is the instant for which the marker
-- was set last, 0 for none. It stays when the marker is taken, so the same instant is set once. Everything works without
-- the marker, later: a lost one costs at most a fetch interval.
-- from time: now, us, whole
-- from call: mark

-- gate(due, paused) is when a message that is due may be handed out: not before the end of a pause (state.pause).
local function gate(due, paused) return math.max(due, whole(paused) or 0) end

-- sooner(due, before) says whether the alarm must be set for an instant: it is not set, or for a later instant (before,
-- which is state.armed).
local function sooner(due, before)
  before = whole(before) or 0
  return before == 0 or due < before
end

-- arm(due) sets the alarm.
local function arm(due)
  redis.call('ZADD', KEYS.wake, us(due), 'w')
  mark('armed', us(due))
end

-- freed(limited, armed, fetches) wakes one consumer if messages that are due wait for a place in unack (state.limited,
-- fetch/limit.lua). settle, tick, intercept and steer call it if they free a place. It returns the new state.limited, nil if
-- that stays; and true, and wakes nobody, if one may go now and the caller fetches.
local function freed(limited, armed, fetches)
  local since, open = string.match(limited, '^(%d+) %d+ (%d+) %d+ 1$')
  if not since then return nil, false end
  if fetches and (whole(open) or 0) <= now then return nil, true end
  local wakes = us(math.max(now, whole(open)))
  redis.call('ZADD', KEYS.wake, wakes, 'w')
  return since .. ' ' .. us(whole(armed) or 0) .. ' ' .. open .. ' ' .. wakes .. ' 0'
end
