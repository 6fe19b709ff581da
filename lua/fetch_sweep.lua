-- What goes in time, part of fetch.

-- Callers that were last heard of a day ago are forgotten, some at a time.
local swept, cursor = whole(state[6]) or 0, state[7] or '0'
if swept > now then swept = 0 end
if not string.match(cursor, '^%d+$') or #cursor > 19 then cursor = '0' end
if cursor ~= '0' or now - swept > 600000000 then
  local page = redis.call('HSCAN', KEYS[10], cursor, 'MATCH', 'call:*', 'COUNT', SWEEP)
  for i = 1, #page[2], 2 do
    local heard = string.match(page[2][i + 1], '^%d+ (%d+) ')
    if page[2][i] ~= field and (not heard or now - heard > 86400000000) then
      redis.call('HDEL', KEYS[10], page[2][i])
    end
  end
  if redis.call('HLEN', KEYS[6]) == 0 then redis.call('HDEL', KEYS[10], 'big') end
  local fields, old = redis.pcall('HKEYS', KEYS[12]), {} -- every ten minutes, some thousand at most
  for i = 1, fields.err and 0 or #fields do
    local at = whole(string.match(fields[i], '^(%d+):'))
    if #old < SWEEP and (not at or at * 3600000000 < now - 2592000000000) then old[#old + 1] = fields[i] end
  end
  if old[1] then redis.pcall('HDEL', KEYS[12], unpack(old)) end
  mark('swept', us(now))
  mark('cursor', page[1])
end

-- For those who look: what was counted, and who consumes. An entry of a consumer that has been silent
-- for long goes when somebody comes upon it.
local function add(kind, n) if n > 0 then redis.pcall('HINCRBY', KEYS[12], counter(kind), n) end end
if not handed then add('delivered', n) end
add('lost', lost)
add('dead', #dead / 3)
if anyone and not anyone.err then
  local heard, lease = string.match(anyone[2] or '', '^(%d+) (%d+) ')
  if anyone[1] and (not heard or now - heard > 2 * lease + 5000000) then redis.call('HDEL', KEYS[11], anyone[1]) end
  if ARGV[12] == '-' then
    redis.call('HDEL', KEYS[11], ARGV[1])
  else
    redis.call('HSET', KEYS[11], ARGV[1], us(now) .. ' ' .. ARGV[4] .. ' ' .. ARGV[12])
  end
end
if dropped > 0 then mark('dropped', us((whole(state[11]) or 0) + dropped)) end
mark(field, record(reply))
redis.call('HSET', KEYS[10], unpack(marks))

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
