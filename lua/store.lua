-- Shared by the scripts that store messages.
local SMALL = 2048 -- an envelope that is no longer than that is not noted in state.big

-- include holder

-- refusal(i, holder, acked) says that message i is not stored, for its key is taken.
local function refusal(i, holder, acked) return us(i) .. named(holder, acked) .. ' ' end
