-- drop deletes a queue. It has no call number, so its caller does not repeat it.
--
-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, wake, state, consumers, history, sequence, done,
--       result, holds, parts, schedules, lanes, waiting
-- ARGV: 1 'empty': only if no consumer is alive, and neither messages nor schedules are there
--         'all': whatever is there; the journal stays
--         'look': deletes nothing
-- Returns {consumers, messages, schedules}: how many consumers are alive, at least ('0' of 'all', because nobody looks
--       then), and how many messages and schedules are there, or were. 'empty' has deleted nothing if one is not 0.
--       Or an error: DQNOQUEUE: there was nothing to delete; DQLAYOUT: the layout is not known, and nothing was deleted.
-- Cost: O(consumers), at most 100 pages of 25 and about 1 MB; memory is freed in the background.

-- from time: now, whole
-- from queue: NOQUEUE, unknown
local layout = redis.pcall('HGET', KEYS.state, 'layout') -- a key of another program is deleted with the others
local refusal = type(layout) ~= 'table' and unknown(layout)
if refusal then return refusal end
local how = ARGV[1]
local alive, size, cursor, pages = 0, 0, '0', 0
while how ~= 'all' and pages < 100 and (alive == 0 or size < 1048576) do
  local page = redis.pcall('HSCAN', KEYS.consumers, cursor, 'COUNT', 25)
  for i = 2, page.err and 0 or #page[2], 2 do
    local heard, lease = string.match(page[2][i], '^(%d+) (%d+) ')
    heard, lease = whole(heard), whole(lease)
    if heard and lease and math.abs(now - heard) <= math.max(lease, 3000000) then alive = alive + 1 end
    size = size + #page[2][i]
  end
  pages, cursor = pages + 1, page[1]
  if page.err or cursor == '0' then break end
end
local messages, schedules = redis.pcall('HLEN', KEYS.msg), redis.pcall('HLEN', KEYS.schedules)
if type(messages) == 'table' then messages = 0 end
if type(schedules) == 'table' then schedules = 0 end
if how == 'look' or how == 'empty' and alive + messages + schedules > 0 then return {alive, messages, schedules} end
local keys = redis.call('UNLINK', KEYS.pending)
keys = keys + redis.call('UNLINK', KEYS.ready)
keys = keys + redis.call('UNLINK', KEYS.unack)
keys = keys + redis.call('UNLINK', KEYS.lease)
keys = keys + redis.call('UNLINK', KEYS.retry)
keys = keys + redis.call('UNLINK', KEYS.garbage)
keys = keys + redis.call('UNLINK', KEYS.msg)
keys = keys + redis.call('UNLINK', KEYS.fail)
keys = keys + redis.call('UNLINK', KEYS.key)
keys = keys + redis.call('UNLINK', KEYS.wake)
keys = keys + redis.call('UNLINK', KEYS.state)
keys = keys + redis.call('UNLINK', KEYS.consumers)
keys = keys + redis.call('UNLINK', KEYS.history)
keys = keys + redis.call('UNLINK', KEYS.sequence)
keys = keys + redis.call('UNLINK', KEYS.done)
keys = keys + redis.call('UNLINK', KEYS.holds)
keys = keys + redis.call('UNLINK', KEYS.schedules)
keys = keys + redis.call('UNLINK', KEYS.result)
keys = keys + redis.call('UNLINK', KEYS.parts)
keys = keys + redis.call('UNLINK', KEYS.lanes)
keys = keys + redis.call('UNLINK', KEYS.waiting)
if keys == 0 then return NOQUEUE end
return {alive, messages, schedules}
