-- Counts. send, single, put, settle and fetch add to the numbers of KINDS in state, which they read and write anyway. The tick moves
-- the numbers to history, which has a field for each hour ('<hours since 1970>') and one for each day ('d<days since 1970>') with
-- these numbers in this order.
-- from time: now, us, whole

local KINDS = {'sent', 'delivered', 'acked', 'failed', 'lost', 'garbage', 'superseded', 'started', 'late', 'latest'}

-- merged(i, a, b) is the sum of two numbers of KINDS[i]; of 'latest', the last kind, it is the greater number.
local function merged(i, a, b) return i == #KINDS and math.max(a, b) or a + b end

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
