-- Shared by put and settle, which store messages one by one.
--
-- complete(delay, version, envelope) is a whole envelope, and when it is due: delay us from now (nil: the envelope says
-- when), but not before now.
local function complete(delay, version, envelope)
  if delay then
    return string.char(tonumber(version)) .. us(now + delay) .. envelope, now + delay
  end
  local due = tonumber(string.sub(envelope, 2, 17))
  if due >= now then return envelope, due end
  return redue(envelope, us(now)), now
end
