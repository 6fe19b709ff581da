-- Shared by every script but single. Instants are unix us, durations us. An instant is written with
-- us() and never with '..' or tostring, which keep 14 digits of 16.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function us(n) return string.format('%.0f', n) end

-- whole(text) is a field of state that should hold a whole number: that, up to the year 2200 in us; nil for
-- anything else, 'nan' and 'inf' too, which are numbers to tonumber.
local function whole(text)
  if not text or not string.match(text, '^%d+$') then return nil end
  return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
