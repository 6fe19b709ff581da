-- Queues that a script must not change.

local NOQUEUE = {err = 'DQNOQUEUE the queue has no key'}

-- missing(armed) is the error that refuses to change a queue that does not exist; nil if the queue exists. armed is
-- that field of state. A queue exists after the first send or fetch, which write state. Its state may be lost, so
-- messages count too.
local function missing(armed)
  if armed or redis.call('HLEN', KEYS.state) > 0 or redis.call('HLEN', KEYS.msg) > 0 then return nil end
  return NOQUEUE
end

-- unknown(layout) is the error that refuses any layout but 1; nil for 1. layout is that field of state, absent for 1. A
-- newer layout may keep messages in structures that this version does not know.
local function unknown(layout)
  if not layout or layout == '1' then return nil end
  return {err = 'DQLAYOUT ' .. string.sub(string.gsub(layout, '[^!-~]', '?'), 1, 20)}
end

-- shardsof(said) reads state.shards; nil: the queue does not say how many it has, or not so that anybody understands
-- it.
local function shardsof(said)
  local n = tonumber(string.match(said or '', '^[1-9]%d?$') or '')
  return n and n <= 64 and n or nil
end

-- othershards(said, n) refuses a call for a queue with n shards, if state says another number. If it says none, the
-- queue has one, or this shard has not been told.
local function othershards(said, n)
  local shards = shardsof(said) and said or '1'
  return shards ~= n and {err = 'DQSHARDS ' .. shards} or nil
end
