-- Shared by the scripts that read fail records, which messages beyond their first delivery have:
-- '<delivery> <failures> <losses in a row> <us when it was written> <errors>'. Errors: none, or up to five, the newest
-- first, each as '\30<us> <delivery> <text>'; what has another form is the text of one. Before them stands '\31' if the
-- delivery is superseded (superseded.lua).
--
-- failure(record) is what a fail record says: failures, losses, errors, when; 0, 0, '' and nil of anything else.
local function failure(record)
  local failures, losses, when, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) \31?(.*)$')
  return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when)
end
