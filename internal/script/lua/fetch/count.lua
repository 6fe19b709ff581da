-- What the call has done is counted. At most once a second what all calls have counted goes to history.
-- takes: repeated, given, lost, dead, replaced, started, late, latest, counted, FIELDS, state, told, byAge, SWEEP, dropped, droppedBefore, outs
-- gives: totals
-- from time: now, us, whole
-- from call: mark
-- from history: KINDS, merged

local function ms(n) return math.floor(n / 1000 + 0.5) end
local counts, any = {0, repeated and 0 or #given, 0, 0, lost, #dead / 3, replaced, started, ms(late), ms(latest)}, false
local stored, acked = state[FIELDS + 1], state[FIELDS + 3] or '0'
local totals = stored .. ' ' .. acked -- of the books
if #totals > 40 then totals = '' end -- another program's
for i = 1, #KINDS do
  if i ~= 1 and i ~= 3 then
    counts[i] = merged(i, counts[i], whole(state[FIELDS + i]) or 0)
    any = any or counts[i] > 0
  end
end
local countedBefore = whole(counted) or 0
if (any or told ~= totals) and (countedBefore > now or now - countedBefore >= 1000000) then
  -- from history: hour, day, untold, tally, kept
  local spans = {us(hour), 'd' .. us(day)}
  local sums = redis.pcall('HMGET', KEYS.history, unpack(spans))
  if not sums.err then
    counts[1], counts[3] = whole(stored) or 0, whole(acked) or 0
    untold(counts, told)
    redis.pcall('HSET', KEYS.history, spans[1], tally(sums[1], counts), spans[2], tally(sums[2], counts))
    if byAge and not sums[1] then -- the first of this hour
      local fields, old = redis.pcall('HRANDFIELD', KEYS.history, SWEEP), {} -- all fields, or SWEEP of them
      for i = 1, #fields do
        if not kept(fields[i]) then old[#old + 1] = fields[i] end
      end
      if old[1] then redis.pcall('HDEL', KEYS.history, unpack(old)) end
    end
    for i = 1, #KINDS do counts[i] = 0 end
    mark('counted', us(now))
    mark('told', totals)
  end
end
for i = 1, #KINDS do
  if i ~= 1 and i ~= 3 and us(counts[i]) ~= (state[FIELDS + i] or '0') then mark(KINDS[i], us(counts[i])) end
end
if dropped > 0 then mark('dropped', us((whole(droppedBefore) or 0) + dropped)) end
if outs then
  for out, n in pairs(outs) do
    if n > 0 then mark(out, us((whole(redis.call('HGET', KEYS.state, out)) or 0) + n)) end
  end
end
