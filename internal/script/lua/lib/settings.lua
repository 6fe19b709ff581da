-- Settings that all consumers of a queue share: the lease, the losses that make a message poison, how long garbage is kept, how many
-- messages it holds, and how many done. The largest value that any consumer asks for holds for all.
-- state.settings is '<value> <when a consumer asked for it> ' for each. A value that nobody has asked for in a lease is forgotten.
-- from time: now, us, whole

-- A field of more than SETTINGS bytes is another program's, and is not read. Five entries have 170 bytes. Of thousands of digits the
-- pattern would take seconds, because it may begin anywhere.
local CENTURY, SETTINGS = 3155760000000000, 200

-- agreed(text, asked) takes that field and what this consumer asks for (nil: nothing). It returns the values that hold, and the new
-- field.
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
