-- Shared by every script. Instants are unix us, durations us. An instant is written with
-- us() and never with '..' or tostring, which keep 14 digits of 16.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function us(n) return string.format('%.0f', n) end

-- keyof(envelope, at) is the caller's own name for a message, '' for none; the key length is at byte `at`,
-- which is 18 unless version and due instant are left out. It copies nothing but the key.
local function keyof(envelope, at)
  local hi, lo = string.byte(envelope, at, at + 1)
  if not lo or hi * 256 + lo == 0 then return '' end
  return string.sub(envelope, at + 2, at + 1 + hi * 256 + lo)
end

-- scored(score) is a score as a number from 0 to the year 2200, whatever somebody else wrote there; nil for none.
local function scored(score)
  if not score then return nil end
  local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
  return math.min(math.max(math.floor(n), 0), 7258118400000000)
end

-- whole(text) is a field of state that should hold a whole number: that, up to the year 2200 in us; nil for
-- anything else, 'nan' and 'inf' too, which are numbers to tonumber.
local function whole(text)
  if not text or not string.match(text, '^%d+$') then return nil end
  return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
