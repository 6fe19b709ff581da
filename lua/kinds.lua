-- Shared by the scripts that know what is counted for history. Every script adds to the numbers of these names in
-- state, which it reads and writes anyway. The tick moves them to history (tally).
local KINDS = {'sent', 'delivered', 'acked', 'failed', 'lost', 'garbage'}
