-- history returns the counts of each of the last 48 hours and the last 30 days.
--
-- KEYS: state, history
-- Returns {now, then for each hour ('<hours since 1970>') and each day ('d<days since 1970>') with counts, and the present ones: its
--       name, the numbers of KINDS}
-- Cost: 4 commands of at most 78 fields, whatever other fields there are. Writes nothing.

-- from time: now, us, whole
-- from history: KINDS, HOURS, DAYS, hour, day, tally, untold
local names = {}
for i = 0, HOURS - 1 do names[#names + 1] = us(hour - i) end
for i = 0, DAYS - 1 do names[#names + 1] = 'd' .. us(day - i) end
local values = redis.call('HMGET', KEYS.history, unpack(names))
local counts = redis.call('HMGET', KEYS.state, unpack(KINDS)) -- not yet moved
for i = 1, #KINDS do counts[i] = whole(counts[i]) or 0 end
untold(counts, redis.call('HGET', KEYS.state, 'told'))
values[1] = tally(values[1], counts)
values[HOURS + 1] = tally(values[HOURS + 1], counts)
local out = {us(now)}
for i = 1, #names do
  if values[i] then
    out[#out + 1] = names[i]
    out[#out + 1] = values[i]
  end
end
return out
