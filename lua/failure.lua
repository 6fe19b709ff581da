-- Shared by the scripts that read fail records, which messages beyond their first delivery have:
-- '<delivery> <failures> <losses in a row> <us when it was written> <errors>'. Errors: none, or up to five, the newest
-- first, each as '\30<us> <delivery> <text>'; what has another form is the text of one. Before them stands '\31' if the
-- delivery is superseded, or ended the message by something else than an ack (superseded.lua).
--
-- failure(record) is what a fail record says: failures, losses, errors, when, whether it has that mark; 0, 0, '', nil and false
-- of anything else.
local function failure(record)
  local failures, losses, when, mark, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (\31?)(.*)$')
  return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when), mark == '\31'
end
