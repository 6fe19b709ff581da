-- Shared by the scripts that read fail records, which messages beyond their first delivery have:
-- '<delivery> <failures> <losses in a row> <us when it was written> <error text>'.
--
-- failure(record) is what a fail record says: failures, losses, error text, when; 0, 0, '' and nil of anything else.
local function failure(record)
  local failures, losses, when, text = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (.*)$')
  return whole(failures) or 0, whole(losses) or 0, text or '', whole(when)
end
