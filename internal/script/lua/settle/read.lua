-- The fields of state are read. A repeat is answered. If there are plain acks alone, fewer fields are needed.
-- takes: plain
-- gives: armed, firstHold, groups, changed, limited, overtaken, canceled, ackedBefore, failedBefore, garbageBefore, supersededBefore,
--        keptBefore
-- from call: field, STALE, recall, guard

local state
if #ARGV > 5 + 2 * ARGV[5] + plain then
  state = redis.call('HMGET', KEYS.state, field, 'armed', 'held', 'parts', 'changed', 'limited', 'overtaken', 'canceled', 'out:acked', 'failed',
    'garbage', 'superseded', 'kept')
else
  state = redis.call('HMGET', KEYS.state, field, 'armed', 'held', 'parts', 'changed', 'limited', 'overtaken', 'canceled', 'out:acked')
end
local saved, armed, firstHold, groups, changed, limited, overtaken, canceled, ackedBefore, failedBefore, garbageBefore, supersededBefore,
  keptBefore = unpack(state, 1, 13)
local reply, at = recall(saved)
if reply then
  local more, overflow, doneOverflow, void, ended, stopped, answers =
    string.match(reply, '^(%+?)(%d+) (%d+) ([^;]*);?([^;]*);?([^;]*);?(.*)$')
  return {at, overflow or reply, doneOverflow or '0', void or '', answers or '', ended or '', (stopped or '') ~= '' and stopped or '0',
    more == '+' and '1' or '0'}
elseif reply == false then
  return {err = STALE}
end
guard(redis.call('ZCARD', KEYS.unack), redis.call('HLEN', KEYS.msg))
if limited then guard(redis.call('ZCARD', KEYS.wake)) end
