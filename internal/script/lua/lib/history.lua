-- Counts. send, single, put, settle and fetch add to the numbers of KINDS in state, which they read and write anyway.
-- The tick moves the numbers to history, which has a field for each hour ('<hours since 1970>') and one for each day
-- ('d<days since 1970>') with these numbers in this order: sent, delivered, acked, and so on. Two of them are totals of
-- the books (lib/books.lua), which stay. state.told is '<in:stored> <out:acked>' as they were when the tick moved
-- counts last.
-- from time: now, us, whole

local KINDS = {'in:stored', 'delivered', 'out:acked', 'failed', 'lost', 'garbage', 'superseded', 'started', 'late', 'latest'}

-- merged(i, a, b) is the sum of two numbers of KINDS[i]; of 'latest', the last kind, it is the greater number.
local function merged(i, a, b) return i == #KINDS and math.max(a, b) or a + b end

-- untold(counts, told) takes off the totals among the numbers of KINDS what history has of them. If that is not known,
-- history has all.
local function untold(counts, told)
  local stored, acked = string.match(told or '', '^(%d+) (%d+)$')
  counts[1] = math.max(counts[1] - (whole(stored) or counts[1]), 0)
  counts[3] = math.max(counts[3] - (whole(acked) or counts[3]), 0)
end

local HOURS, DAYS = 48, 30 -- how far history goes back
local hour, day = math.floor(now / 3600000000), math.floor(now / 86400000000)

-- tally(text, numbers) is a field of history with the numbers added. A field that is not understood counts as zeros.
local function tally(text, numbers)
  local sums = {string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')}
  for i = 1, #KINDS do sums[i] = us(merged(i, whole(sums[i]) or 0, numbers[i])) end
  return table.concat(sums, ' ')
end

-- kept(span) says whether history still needs a field.
local function kept(span)
  local kind, n = string.match(span, '^(d?)(%d+)$')
  n = whole(n)
  if not n then return false end
  if kind == 'd' then return n > day - DAYS and n <= day end
  return n > hour - HOURS and n <= hour
end
