-- Shared by the scripts that go by what the consumers of a queue must agree on: their lease, the losses that make
-- a message poison, for how long garbage is kept, how much of it, and how much that is done. The most that any of them
-- asks for holds for all.
-- state.settings is '<value> <when somebody asked for that much> ' for each; a value that nobody has asked for in a
-- lease is forgotten.
--
-- A field of more than SETTINGS bytes is another program's, and not read: five entries have 170, and of thousands of digits the
-- pattern, which may begin anywhere, takes seconds.
--
-- agreed(text, asked) takes that field, and what this consumer asks for (nil: nothing). Returns the values, and the
-- field anew.
local CENTURY, SETTINGS = 3155760000000000, 200
local function agreed(text, asked)
  local said, values, parts, stamp = {}, {}, {}, ' ' .. us(now) .. ' '
  if not text or #text > SETTINGS then text = '' end
  for value, when in string.gmatch(text, '(%d+) (%d+) ') do said[#said + 1] = {whole(value), whole(when)} end
  for i = 1, 5 do
    local value, when, other = math.min(asked[i] or 0, CENTURY), now, #said == 5 and said[i]
    if other and other[1] > value and other[1] <= CENTURY then
      local lease = i == 1 and other[1] or values[1]
      if math.abs(now - other[2]) <= lease then value, when = other[1], other[2] end
    end
    values[i] = value
    parts[i] = us(value) .. (when == now and stamp or ' ' .. us(when) .. ' ')
  end
  return values, table.concat(parts)
end
