-- consumers lists the consumers that were heard lately, a page at a time.
--
-- KEYS: consumers
-- ARGV: 1 '0' for the first page, then the cursor of the page before
-- Returns {now, cursor ('0': this was the last page), then for each consumer: name, '<us when it said so> <its lease us> <what it
--       said>'}. Some may be dead by now, and some may come twice.
-- Cost: 2 commands; about 25 consumers, each with 100 messages at most. Writes nothing.

-- from time: now, us
local page = redis.call('HSCAN', KEYS.consumers, ARGV[1], 'COUNT', 25)
local out = {us(now), page[1]}
for i = 1, #page[2] do out[i + 2] = page[2][i] end
return out
