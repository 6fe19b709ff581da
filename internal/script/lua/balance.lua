-- balance returns the books of a queue (lib/books.lua), and what is there, at one instant.
--
-- KEYS: msg, state
-- Returns {now, fields, books, here, difference, then a number for each of BOOKS}
--       fields: how many state has; books: when they were opened, '0' if they are not open; difference: how many messages are missing, less than
--       0: how many are too many; '0' if the books are not open
-- Cost: 5 commands. Writes nothing.

-- from time: now, us, whole
-- from books: BOOKS, difference
local values, here = redis.call('HMGET', KEYS.state, unpack(BOOKS)), redis.call('HLEN', KEYS.msg)
local opened, missing = whole(redis.call('HGET', KEYS.state, 'books')) or 1, difference(values, here)
if not missing then opened = 0 end
local out = {us(now), us(redis.call('HLEN', KEYS.state)), us(opened), us(here), us(missing or 0)}
for i = 1, #BOOKS do out[#out + 1] = us(missing and whole(values[i]) or 0) end
return out
