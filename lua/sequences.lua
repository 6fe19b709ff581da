-- sequences says how far sequences have come (WithSequence): one of them, or a page of all.
--
-- KEYS: sequence
-- ARGV: 1 name of the one, '' for a page; 2 '0' for the first page, then the cursor of the page before
-- Returns {now, cursor ('0': there is no other page), then for each: name, 20 digits of its last number and 2^63}; on the pages
--       some may come twice.
-- Cost: 2 commands; some 100 names of 512 bytes at most. Writes nothing.

-- include head
local name = ARGV[1]
if name ~= '' then
  local last = redis.call('HGET', KEYS.sequence, name)
  if last then return {us(now), '0', name, last} end
  return {us(now), '0'}
end
local page = redis.call('HSCAN', KEYS.sequence, ARGV[2], 'COUNT', 100)
local out = {us(now), page[1]}
for i = 1, #page[2] do out[i + 2] = page[2][i] end
return out
