-- Shared by the scripts that must have the effect of once when they arrive twice:
-- ARGV[1] caller, ARGV[2] number of the call, from 1, rising with each new call of that caller.
local field = 'call:' .. ARGV[1] -- of state: '<number> <us when it was carried out> <what it came to>', of the last call
local STALE = {err = 'DQSTALE a later call of this caller was carried out'}

-- recall(saved) reads what state holds of this caller's last call. Returns
--   nil            this call is new
--   reply, at      this call was carried out at that instant: the reply was lost
--   false          a later call was carried out: this one came too late for anybody to
--                  wait for it, and must do nothing
-- Whoever gets a reply answers it again and does not repeat what it did. (fetch leases those deliveries anew, or gives
-- them back, and does the rest of a tick; send writes the record again.)
local function recall(saved)
  if not saved then return nil end
  local n, at, reply = string.match(saved, '^(%d+) (%d+) (.*)$')
  if not n then return nil end
  local call = tonumber(ARGV[2])
  if whole(n) < call then return nil end
  if whole(n) > call then return false end
  return reply, at
end

-- guard(…) does nothing with the answers that it is given: each is of a read of a key that the call may touch. If that
-- key belongs to another program the read raises WRONGTYPE before anything is written. Scripts do not roll back, so no
-- script may fail after its first write: what has not been looked at before is read by pcall (TestScriptWritesAllOrNothing).
local function guard() end

-- mark(name, value) notes a field of state, and remember(reply) writes all of them, with what this call came to.
local marks = {}
local function mark(name, value)
  marks[#marks + 1] = name
  marks[#marks + 1] = value
end
local function remember(reply)
  mark(field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply)
  redis.call('HSET', KEYS.state, unpack(marks))
end
