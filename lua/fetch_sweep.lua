-- What goes in time, part of fetch.

-- Callers are forgotten, some at a time.
local swept, cursor = whole(state[6]) or 0, state[7] or '0'
if swept > now then swept = 0 end
if not string.match(cursor, '^%d+$') or #cursor > 19 then cursor = '0' end
if cursor ~= '0' or now - swept > 600000000 then
  local page = redis.call('HSCAN', KEYS.state, cursor, 'MATCH', 'call:*', 'COUNT', SWEEP)
  for i = 1, #page[2], 2 do
    if page[2][i] ~= field and forgotten(page[2][i], page[2][i + 1]) then
      redis.call('HDEL', KEYS.state, page[2][i])
    end
  end
  if redis.call('HLEN', KEYS.msg) == 0 then redis.call('HDEL', KEYS.state, 'big') end
  mark('swept', us(now))
  mark('cursor', page[1])
end

-- For those who look. What was counted, by this call and by all since the tick before, goes to history: once a
-- second at most.
local counts, any = {0, handed and 0 or n, 0, 0, lost, #dead / 3}, false
for i = 1, #KINDS do
  counts[i] = counts[i] + (whole(state[12 + i]) or 0)
  any = any or counts[i] > 0
end
local counted = whole(state[12]) or 0
if any and (counted > now or now - counted >= 1000000) then
  local spans = {us(hour), 'd' .. us(day)}
  local sums = redis.pcall('HMGET', KEYS.history, unpack(spans))
  if not sums.err then
    redis.pcall('HSET', KEYS.history, spans[1], tally(sums[1], counts), spans[2], tally(sums[2], counts))
    if not sums[1] then -- the first of this hour
      redis.pcall('EXPIRE', KEYS.history, 2678400)
      local fields, old = redis.pcall('HRANDFIELD', KEYS.history, SWEEP), {} -- all, or as many as are swept at a time
      for i = 1, #fields do
        if not kept(fields[i]) then old[#old + 1] = fields[i] end
      end
      if old[1] then redis.pcall('HDEL', KEYS.history, unpack(old)) end
    end
    counts = {0, 0, 0, 0, 0, 0}
    mark('counted', us(now))
  end
end
for i = 1, #KINDS do
  if us(counts[i]) ~= (state[12 + i] or '0') then mark(KINDS[i], us(counts[i])) end
end

-- Who consumes. An entry of a consumer that has been silent for long, or is from the future, goes when somebody
-- comes upon it; and all of them go in a month without any consumer.
if anyone and not anyone.err then
  local heard, lease = string.match(anyone[2] or '', '^(%d+) (%d+) ')
  heard, lease = whole(heard), whole(lease)
  if anyone[1] and (not heard or not lease or math.abs(now - heard) > 2 * lease + 5000000) then
    redis.call('HDEL', KEYS.consumers, anyone[1])
  end
  if ARGV[12] == '-' then
    redis.call('HDEL', KEYS.consumers, ARGV[1])
  else
    redis.call('HSET', KEYS.consumers, ARGV[1], us(now) .. ' ' .. ARGV[4] .. ' ' .. ARGV[12])
    redis.pcall('EXPIRE', KEYS.consumers, 2678400)
  end
end
if dropped > 0 then mark('dropped', us((whole(state[11]) or 0) + dropped)) end
mark(field, record(reply))
redis.call('HSET', KEYS.state, unpack(marks))

local f, d, h = #fails, #dead, #held
for i, value in ipairs({us(now), us(next), lost, dropped, crowd, state[3] and 0 or 1, us(lease), us(maxlosses), us(age),
  us(room), n, f, d / 3, h / 4}) do out[i] = value end
local function append(list, at)
  for i = 1, #list do out[at + i] = list[i] end
end
append(fails, HEAD + 2 * n)
append(dead, HEAD + 2 * n + f)
append(held, HEAD + 2 * n + f + d)
return out
