-- What was counted since the last tick goes to history.
-- from time: us, whole
-- from call: mark
-- from history: KINDS, merged, hour, day, untold, tally, kept
-- from tick/read: SWEEP, KNOWN

-- forgethistory() deletes old fields of history.
local function forgethistory()
  local fields, old = redis.pcall('HRANDFIELD', KEYS.history, SWEEP), {} -- all fields, or SWEEP of them
  for i = 1, #fields do
    if not kept(fields[i]) then old[#old + 1] = fields[i] end
  end
  if old[1] then redis.pcall('HDEL', KEYS.history, unpack(old)) end
end

-- addhistory(c) adds the counts of state and of this call to the fields of this hour and this day. Totals of the books
-- stay in state.
local function addhistory(c)
  local stored, acked = c.state[KNOWN + 1], c.state[KNOWN + 3] or '0'
  local totals, counts, any = stored .. ' ' .. acked, {0, 0, 0, 0, c.lost, #c.dead / 3, c.replaced, 0, 0, 0}, false
  if #totals > 40 then totals = '' end -- another program's
  for i = 1, #KINDS do
    if i ~= 1 and i ~= 3 then
      counts[i] = merged(i, counts[i], whole(c.state[KNOWN + i]) or 0)
      any = any or counts[i] > 0
    end
  end
  if any or c.told ~= totals then
    local spans = {us(hour), 'd' .. us(day)}
    local sums = redis.pcall('HMGET', KEYS.history, unpack(spans))
    if not sums.err then
      counts[1], counts[3] = whole(stored) or 0, whole(acked) or 0
      untold(counts, c.told)
      redis.pcall('HSET', KEYS.history, spans[1], tally(sums[1], counts), spans[2], tally(sums[2], counts))
      if c.byAge and not sums[1] then forgethistory() end -- the first of this hour
      for i = 1, #KINDS do counts[i] = 0 end
      mark('told', totals)
    end
  end
  for i = 1, #KINDS do
    if i ~= 1 and i ~= 3 and us(counts[i]) ~= (c.state[KNOWN + i] or '0') then mark(KINDS[i], us(counts[i])) end
  end
  for out, n in pairs(c.outs) do
    if n > 0 then mark(out, us((whole(redis.call('HGET', KEYS.state, out)) or 0) + n)) end
  end
end
