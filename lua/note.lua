-- note writes into the journal what somebody has done to the queue, or asks the one who runs a call for many to stop.
--
-- KEYS: journal
-- ARGV: 1 what: 'done', 'begins' or 'runs' (a call for many), or 'stop' (ask for that), 2 token of the entry, in hexadecimal,
--       3 us at which the entry was made ('': it is new), 4 us for which this call has been tried, 5 its text, '' of
--       'stop', 6 s for which the journal is kept from now on (0: for ever), 7 what this process was told last time of when it wrote, or
--       of 'begins' what it has read; '': nothing
-- Returns {now, us at which the entry was made, what it says, us when it was written}: 'done', 'runs', or 'stop' of one that
--       runs and is asked to; of 'stop' what it said before; '' if there is no such entry to stop; 'taken' if another process
--       has written since: it goes on with that call, and nothing was changed.
-- Cost: 6 commands of O(log n), and those entries that were made in that us, or since the first try.
--       What comes twice is written once. The first write is a ZREM: a full server lets the rest pass.

-- include head, score
local MOST = 1000 -- entries
local what, token, made, text = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local from, to = made, made
if made == '' then from, to = us(now - tonumber(ARGV[4]) - 1000000), '+inf' end
local old, said, wrote, before = nil, '', us(now), '' -- the entry as it stands: what it says, when it was written, its text
if made ~= '' or ARGV[4] ~= '0' then
  local page = redis.call('ZRANGEBYSCORE', KEYS.journal, from, to, 'WITHSCORES')
  for i = 1, #page, 2 do
    local name, word, at, rest = string.match(page[i], '^(%x+) (%l+) (%d+) (.*)$')
    if name == token then old, said, made, wrote, before = page[i], word, us(scored(page[i + 1])), at, rest end
  end
else
  redis.call('ZCARD', KEYS.journal)
end
if what == 'stop' and not old then return {us(now), '0', '', '0'} end
if old and what ~= 'stop' and ARGV[7] ~= '' and ARGV[7] ~= wrote and text ~= before then return {us(now), made, 'taken', wrote} end
local word = what == 'begins' and 'runs' or what
if what == 'stop' then
  text = before
  if said == 'done' then word = said end
elseif said == 'stop' and (what == 'runs' or ARGV[4] ~= '0' and text == before) then
  word = said
end
-- It is there: of two tries that were both carried out, in whatever order, each answers the same.
if old and what ~= 'stop' and said == word and text == before then return {us(now), made, word, wrote} end
redis.call('ZREM', KEYS.journal, old or '') -- the first write
if made == '' then made = us(now) end
if what ~= 'stop' then -- no two writes have the same us, by which who has come first is known
  local last = old and tonumber(wrote) or 0
  wrote = us(last >= now and last - now < 1000000 and last + 1 or now)
end
redis.call('ZREMRANGEBYRANK', KEYS.journal, 0, -MOST) -- before it is added: of a call that runs it may be older than all that is kept
redis.call('ZADD', KEYS.journal, made, token .. ' ' .. word .. ' ' .. wrote .. ' ' .. text)
if ARGV[6] == '0' then redis.call('PERSIST', KEYS.journal) else redis.call('EXPIRE', KEYS.journal, ARGV[6]) end
return {us(now), made, what == 'stop' and said or word, wrote}
