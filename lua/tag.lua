-- split(tag) is the delivery number and the id of a tag, as splitTag in Go: '<delivery>:<id>', or the id for the first.
local function split(tag)
  local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
  if n and n ~= '1' and #n < 10 then return tonumber(n), id end
  return 1, tag
end
