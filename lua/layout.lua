-- Shared by the scripts that must not run on a queue of a newer layout, for it may keep messages in structures that they
-- do not know. state.layout is the layout of the queue, absent for 1.
--
-- unknown(layout) is the error that refuses any layout but 1; nil for that.
local function unknown(layout)
  if not layout or layout == '1' then return nil end
  return {err = 'DQLAYOUT ' .. string.sub(string.gsub(layout, '[^!-~]', '?'), 1, 20)}
end
