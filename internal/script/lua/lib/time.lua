-- Time and numbers. Instants are unix us, durations us. The last instant is 7258118400000000, in the year 2200.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- us(n) is a whole number below 2^63 as text. An instant is never written with '..' or tostring, because those keep 14
-- digits of 16. The last text is kept, because the same instant is often written several times. '%d' takes a third of
-- the time of '%.0f', and is right on all servers of 64 bits.
local written, digits
local function us(n)
  if n ~= written then written, digits = n, string.format('%d', n) end
  return digits
end

-- whole(text) is the whole number in a field of state, up to the last instant. It is nil for anything else, also for
-- 'nan' and 'inf', which tonumber takes for numbers.
local function whole(text)
  if not text or not string.find(text, '^%d+$') then return nil end
  return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end

-- scored(score) is a score as a number from 0 to the last instant, whatever another program wrote; nil for none.
local function scored(score)
  if not score then return nil end
  local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
  return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
