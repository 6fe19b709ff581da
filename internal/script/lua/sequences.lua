-- sequences says how far one sequence (WithSequence) has come, or a page of all. It is a script of its own, because
-- users that may only read call it.
--
-- KEYS: sequence
-- ARGV: 1 name of the sequence, '' for a page; 2 '0' for the first page, then the cursor of the page before
-- Returns {now, cursor ('0': this was the last page), then for each sequence: name, 20 digits of its last number and 2^63}. On the pages
--       some may come twice.
-- Cost: 2 commands; about 100 names of 512 bytes at most. Writes nothing.

-- from time: now, us
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
