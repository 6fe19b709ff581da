-- The books of a queue without totals are opened. What leaves the queue is noted.
-- takes: FIELDS, state, told
-- gives: leaves, outs

if not state[FIELDS + 1] then
  -- from books: openbooks
  openbooks()
  state[FIELDS + 1], state[FIELDS + 3], told = '0', '0', '0 0'
end

-- leaves(out, n) notes that n messages were deleted. outs has these by the fields of the books.
local outs
local function leaves(out, n)
  outs = outs or {}
  outs[out] = (outs[out] or 0) + n
end
