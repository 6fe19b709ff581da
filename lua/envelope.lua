-- Shared by the scripts that look into envelopes: 1 byte version, 16 digits due instant, 2 bytes length of the key,
-- the key, and what only Go reads.

-- keyof(envelope) is the message key, '' for none. It copies nothing but the key.
local function keyof(envelope)
  local hi, lo = string.byte(envelope, 18, 19)
  if not lo or hi * 256 + lo == 0 then return '' end
  return string.sub(envelope, 20, 19 + hi * 256 + lo)
end

-- redue(envelope, digits) is the envelope with another due instant, which has 16 digits.
local function redue(envelope, digits) return string.sub(envelope, 1, 1) .. digits .. string.sub(envelope, 18) end
