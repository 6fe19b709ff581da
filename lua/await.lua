-- await says what has become of messages whose results somebody waits for.
--
-- KEYS: garbage, msg, fail, done, result
-- ARGV: ids, 1 to 500
-- Returns {now, then for each, or for the first of them, if their results and errors are more than 1 MB: a word, us,
--       text}: 'done', when it was acked, its result ('': none); 'superseded', when it ended because another send had taken its
--       key, and without an ack, its last error; 'garbage', when it died, its last error; 'gone', '0',
--       '': it is nowhere, or done for longer than it was to be kept; 'live', '0', '': it is to be handled still.
-- Cost: 3 commands, and 1 to 3 for each. Writes nothing.

-- include head, score, failure
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
