-- Shared by the scripts that must have the effect of once when they arrive twice:
-- ARGV[1] caller, ARGV[2] number of the call, from 1, rising with each new call of that caller.
--
-- recall(saved) reads what state holds of this caller's last call. Returns
--   nil            this call is new
--   reply, at      this call was carried out at that instant: the reply was lost
--   false          a later call was carried out: this one came too late for anybody to
--                  wait for it, and must do nothing
-- Whoever gets a reply answers it again and changes nothing (fetch: nothing but leases).
local function recall(saved)
  if not saved then return nil end
  local n, at, reply = string.match(saved, '^(%d+) (%d+) (.*)$')
  if not n then return nil end
  local call = tonumber(ARGV[2])
  if whole(n) < call then return nil end
  if whole(n) > call then return false end
  return reply, at
end
local stale = {err = 'DQSTALE a later call of this caller was carried out'}
local function record(reply) return ARGV[2] .. ' ' .. us(now) .. ' ' .. reply end
