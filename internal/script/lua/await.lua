-- await says what has become of messages for whose results somebody waits.
--
-- KEYS: garbage, msg, fail, done, result
-- ARGV: ids, 1 to 500
-- Returns {now, then for each message three values}, or for the first of them, if their results and errors are more than 1 MB:
--         'done'        when it was acked, its result ('': none)
--         'superseded'  when it ended without ack, because another send had taken its key; its last error
--         'garbage'     when it died, its last error
--         'live'        '0', '': it is still to be handled
--         'gone'        '0', '': it is nowhere, or the time for which it was kept as done is over
-- Cost: 3 commands, and 1 to 3 for each. Writes nothing.

-- from time: now, us, scored
-- from record: failure
local REPLY = 1048576
local died, kept = redis.call('ZMSCORE', KEYS.garbage, unpack(ARGV)), redis.call('ZMSCORE', KEYS.done, unpack(ARGV))
local out, size = {us(now)}, 0
local function newest(errors)
  local last = string.match(errors, '^\30([^\30]*)')
  return last and (string.match(last, '^%d+ %d+ (.*)$') or last) or errors
end
for i, id in ipairs(ARGV) do
  local word, at, text = 'gone', 0, ''
  if redis.call('HEXISTS', KEYS.msg, id) == 1 then
    if kept[i] then
      if scored(kept[i]) > now then
        local _, _, errors, when, superseded = failure(redis.call('HGET', KEYS.fail, id))
        word, at, text = 'done', when or 0, redis.call('HGET', KEYS.result, id) or ''
        if superseded then word, text = 'superseded', newest(errors) end
      end
    elseif died[i] then
      local _, _, errors = failure(redis.call('HGET', KEYS.fail, id))
      word, at, text = 'garbage', scored(died[i]), newest(errors)
    else
      word = 'live'
    end
  end
  size = size + #text
  out[#out + 1], out[#out + 2], out[#out + 3] = word, us(at), text
  if size > REPLY then break end
end
return out
