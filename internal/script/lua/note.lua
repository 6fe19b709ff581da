-- note writes an entry of the journal, or asks the process that runs a call for many to stop.
--
-- KEYS: journal
-- ARGV: 1 'done', 'runs' (a call for many runs) or 'stop' (ask that call to stop), 2 token of the entry, in hexadecimal,
--       3 us at which the entry was made ('': it is new), 4 us since the first try of this call, 5 text of the entry, '' of 'stop',
--       6 s for which the journal is kept from now on (0: for ever)
-- Returns {now, us at which the entry was made, its word}: 'done', 'runs', or 'stop' if it runs and was asked to stop; of ARGV 1 'stop'
--       the word before, '' if there is no such entry. An entry that is 'done' stays 'done'.
-- Cost: 6 commands of O(log n), and the entries that were made in that us, or since the first try.
--       An entry that comes twice is written once. The first write is a ZREM: a full server lets the rest pass.

-- from time: now, us, scored
local MOST = 1000 -- entries
local what, token, made, text = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local from, to = made, made
if made == '' then from, to = us(now - tonumber(ARGV[4]) - 1000000), '+inf' end
local old, said, wrote, before = nil, '', us(now), '' -- the entry as it stands; its word, when it was written, its text
if made ~= '' or ARGV[4] ~= '0' then
  local page = redis.call('ZRANGEBYSCORE', KEYS.journal, from, to, 'WITHSCORES')
  for i = 1, #page, 2 do
    local name, word, at, rest = string.match(page[i], '^(%x+) (%l+) (%d+) (.*)$')
    if name == token then old, said, made, wrote, before = page[i], word, us(scored(page[i + 1])), at, rest end
  end
else
  redis.call('ZCARD', KEYS.journal)
end
if what == 'stop' and not old then return {us(now), '0', ''} end
local word = what
if what == 'stop' or said == 'done' then text = before else wrote = us(now) end
if said == 'done' or said == 'stop' and what == 'runs' then word = said end
-- The entry says so already: two tries that were both carried out reply the same, in whatever order.
if old and what ~= 'stop' and said == word and text == before then return {us(now), made, word} end
redis.call('ZREM', KEYS.journal, old or '') -- the first write
if made == '' then made = us(now) end
redis.call('ZREMRANGEBYRANK', KEYS.journal, 0, -MOST) -- first, because the entry of a call that runs may be older than all others
redis.call('ZADD', KEYS.journal, made, token .. ' ' .. word .. ' ' .. wrote .. ' ' .. text)
if ARGV[6] == '0' then redis.call('PERSIST', KEYS.journal) else redis.call('EXPIRE', KEYS.journal, ARGV[6]) end
return {us(now), made, what == 'stop' and said or word}
