-- scored(score) is a score as a number from 0 to the year 2200, whatever somebody else wrote there; nil for none.
local function scored(score)
  if not score then return nil end
  local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
  return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
