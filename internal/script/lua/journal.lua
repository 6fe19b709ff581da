-- journal reads the journal, the newest entry first.
--
-- KEYS: journal
-- ARGV: 1 how many, 2 us and 3 token of the last entry of the page before ('': this is the first page), 4 '1': only that
--       entry
-- Returns {now, '1' if there are more, then for each entry: us at which it was made, the entry as it stands}
-- Cost: a command for each 16 entries, which are 1.5 MB at most, until the reply has 1 MB. After the first page 1 more, and entries of
--       the same us as the last entry of the page before are read once more. Writes nothing.

-- from time: now, us
local REPLY, CHUNK = 1048576, 16
local most, last, token, alone = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4] == '1'
local out, size, n = {us(now), '0'}, 0, 0
local upto, passed = '+inf', 0
if last ~= '' then upto, passed = last, redis.call('ZCOUNT', KEYS.journal, last, last) end
local from, left = 0, most + passed + 1
while left > 0 do
  local page = redis.call('ZREVRANGEBYSCORE', KEYS.journal, upto, alone and last or '-inf', 'WITHSCORES', 'LIMIT', from,
    math.min(left, CHUNK))
  for i = 1, #page, 2 do
    local name = string.match(page[i], '^(%x+) ') or ''
    from = from + 1
    local wanted = last == '' or from > passed or name < token
    if alone then wanted = name == token end
    if wanted then
      n, size = n + 1, size + #page[i]
      if n > most or size > REPLY and n > 1 then
        out[2] = '1'
        return out
      end
      out[#out + 1], out[#out + 2] = page[i + 1], page[i]
    end
  end
  left = #page == 2 * CHUNK and left - CHUNK or 0
end
return out
