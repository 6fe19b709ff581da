-- Parts of groups, and what is left of countdowns, for a reply.
-- from time: us
-- from group: partsof, partnames
-- from countdown: missingof

-- addparts(c, nth, id, envelope) adds those of a message to c.parts and c.missing: no part if any is missing. It must
-- not raise, because it comes after the first write, and the key parts was not read before if state says that there are
-- no groups.
local function addparts(c, nth, id, envelope)
  local missing, parts = c.missing, c.parts
  local acks = c.groups and missingof(id, envelope)
  if acks then missing[#missing + 1], missing[#missing + 2] = us(nth), us(acks) end
  local n = partsof(envelope)
  if n < 2 then return end
  local values = redis.pcall('HMGET', KEYS.parts, unpack(partnames(id, n)))
  local there = not values.err
  for i = 1, #values do there = there and values[i] end
  local at = #parts
  parts[at + 1], parts[at + 2] = us(nth), there and us(#values) or '0'
  for i = 1, there and #values or 0 do parts[at + 2 + i] = values[i] end
end
