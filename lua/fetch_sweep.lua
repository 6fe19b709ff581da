-- Part of fetch: old callers are forgotten, and what was counted moves to history.

-- Callers are forgotten, some at a time.
local sweptBefore, page = whole(swept) or 0, cursor or '0'
if sweptBefore > now then sweptBefore = 0 end
if not string.match(page, '^%d+$') or #page > 19 then page = '0' end
if byAge and not byAlarm and (page ~= '0' or now - sweptBefore > 600000000) then
  -- include callers
  page = redis.call('HSCAN', KEYS.state, page, 'MATCH', 'call:*', 'COUNT', SWEEP)
  for i = 1, #page[2], 2 do
    if page[2][i] ~= field and forgotten(page[2][i], page[2][i + 1]) then
      redis.call('HDEL', KEYS.state, page[2][i])
    end
  end
  if redis.call('HLEN', KEYS.msg) == 0 then redis.call('HDEL', KEYS.state, 'big', 'parts', 'changed', 'overtaken') end
  mark('swept', us(now))
  mark('cursor', page[1])
end

-- What was counted, by this call and by all since the tick before, goes to history: once a second at most.
local function ms(n) return math.floor(n / 1000 + 0.5) end
local counts, any, countedBefore =
  {0, repeated and 0 or #given, 0, 0, lost, #dead / 3, replaced, started, ms(late), ms(latest)}, false, whole(counted) or 0
for i = 1, #KINDS do
  counts[i] = merged(i, counts[i], whole(state[FIELDS + i]) or 0)
  any = any or counts[i] > 0
end
if any and (countedBefore > now or now - countedBefore >= 1000000) then
  -- include tally
  local spans = {us(hour), 'd' .. us(day)}
  local sums = redis.pcall('HMGET', KEYS.history, unpack(spans))
  if not sums.err then
    redis.pcall('HSET', KEYS.history, spans[1], tally(sums[1], counts), spans[2], tally(sums[2], counts))
    if byAge and not sums[1] then -- the first of this hour
      local fields, old = redis.pcall('HRANDFIELD', KEYS.history, SWEEP), {} -- all, or as many as are swept at a time
      for i = 1, #fields do
        if not kept(fields[i]) then old[#old + 1] = fields[i] end
      end
      if old[1] then redis.pcall('HDEL', KEYS.history, unpack(old)) end
    end
    for i = 1, #KINDS do counts[i] = 0 end
    mark('counted', us(now))
  end
end
for i = 1, #KINDS do
  if us(counts[i]) ~= (state[FIELDS + i] or '0') then mark(KINDS[i], us(counts[i])) end
end
if dropped > 0 then mark('dropped', us((whole(droppedBefore) or 0) + dropped)) end
