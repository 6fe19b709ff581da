-- Numbered calls, which have the effect of once if they arrive twice. ARGV[1] is the caller. ARGV[2] is the number of
-- the call, from 1, which rises with each new call of that caller. A caller makes one call at a time. It is forgotten an
-- hour after its last one: then a repeat is a new call. A caller that gets DQSTALE for a new call takes a new name.
-- from time: now, us, whole

-- field is the field of state with the caller's last call: '<number> <us when it was carried out> <reply>'.
local field = 'call:' .. ARGV[1]

local STALE = 'DQSTALE a later call of this caller was carried out'

-- recall(saved) reads what state holds of this caller's last call. Returns
--   nil, at, n     this call is new; n is the number of the last one, which was carried out at that instant (nil: there is none)
--   reply, at, n   this call was carried out at that instant: this is a repeat, because the reply was lost
--   false          a later call was carried out: nobody waits for this one, and it must do nothing
-- A repeat is answered with the reply of the first call and does nothing again. Exceptions: fetch leases the deliveries
-- anew or gives them back; send and put write the record again.
local function recall(saved)
  if not saved then return nil end
  local n, at, reply = string.match(saved, '^(%d+) (%d+) (.*)$')
  if not n then return nil end
  local call, last = tonumber(ARGV[2]), tonumber(n)
  if last < call then return nil, at, n end
  if last > call then return false end
  return reply, at, n
end

-- again(saved) answers a call of send or put that was carried out before; nil if the call is new. It writes the record
-- once more, so that a WAIT that follows on this connection waits for the record.
local function again(saved)
  local reply, at = recall(saved)
  if reply then
    redis.call('ZREM', KEYS.pending, '')
    redis.call('HSET', KEYS.state, field, saved)
    return {at, reply}
  end
  return reply == false and {err = STALE} or nil
end

-- guard(…) takes the answers of reads and does nothing. Each read is of a key that the call may touch: if the key
-- belongs to another program, the read raises WRONGTYPE before anything is written. Scripts do not roll back, so no
-- script may fail after its first write. A key that was not read before is used by pcall
-- (TestScriptWritesAllOrNothing).
local function guard() end

-- mark(name, value) notes a field of state. remember(reply) writes all noted fields and the record of this call.
local marks = {}
local function mark(name, value)
  marks[#marks + 1] = name
  marks[#marks + 1] = value
end
local function remember(reply)
  redis.call('HSET', KEYS.state, field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply, unpack(marks))
end

-- forgotten(name, record) says whether a field of state is the record of a caller whose last call was more than an hour
-- ago, or is more than an hour ahead. A repeat that comes later counts as a new call.
local function forgotten(name, record)
  if string.sub(name, 1, 5) ~= 'call:' then return false end
  local called = whole(string.match(record, '^%d+ (%d+) '))
  return not called or math.abs(now - called) > 3600000000
end
