-- Shared by the scripts that know what is counted for history. send, single, settle and fetch add to the numbers of
-- these names in state, which they read and write anyway. The tick moves them to history (tally).
local KINDS = {'sent', 'delivered', 'acked', 'failed', 'lost', 'garbage'}
