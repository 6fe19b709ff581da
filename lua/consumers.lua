-- consumers says who has consumed lately, a page at a time.
--
-- KEYS: consumers
-- ARGV: 1 '0' for the first page, then the cursor of the page before
-- Returns {now, cursor ('0': there is no other page), then for each: name, '<us when it said so> <its lease us> <what
--       it said>'}; some may be dead by now, and some may come twice.
-- Cost: 2 commands; what some 25 consumers say, each of 100 messages at most. Writes nothing.

-- include head
local page = redis.call('HSCAN', KEYS.consumers, ARGV[1], 'COUNT', 25)
local out = {us(now), page[1]}
for i = 1, #page[2] do out[i + 2] = page[2][i] end
return out
