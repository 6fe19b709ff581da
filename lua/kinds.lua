-- Shared by the scripts that know what is counted for history. send, single, settle and fetch add to the numbers of
-- these names in state, which they read and write anyway. The tick moves them to history (tally).
local KINDS = {'sent', 'delivered', 'acked', 'failed', 'lost', 'garbage', 'superseded', 'started', 'late', 'latest'}

-- merged(i, a, b) is a number of KINDS[i] with another one added; of 'latest', the last, it is the greater of them.
local function merged(i, a, b) return i == #KINDS and math.max(a, b) or a + b end
