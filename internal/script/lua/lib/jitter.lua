-- Chance, by the seed that the caller gives as ARGV 3.

local seed = tonumber(ARGV[3])

-- jitter(width) is a number in [0, width).
local function jitter(width)
  seed = seed * 16807 % 2147483647 -- Park and Miller's minimal standard generator, exact in a double
  return math.floor(seed / 2147483647 * width)
end
