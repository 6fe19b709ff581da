-- The lease of a queue is the longest that any of its consumers asks for.
-- state.lease is '<us> <when a consumer asked for it>'. A lease that nobody has asked for while it lasts is forgotten.
-- from time: now, us, whole

local CENTURY = 3155760000000000 -- us; no lease is longer

-- longest(text, asked) takes that field and what this consumer asks for. It returns the lease that holds, and the new
-- field.
local function longest(text, asked)
  local lease, at = string.match(text or '', '^(%d+) (%d+)$')
  lease, at = whole(lease), whole(at)
  if lease and at and lease > asked and lease <= CENTURY and math.abs(now - at) <= lease then return lease, text end
  return asked, us(asked) .. ' ' .. us(now)
end
