-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, wake, state, consumers, history, sequence, done, result, holds, parts, schedules, lanes, waiting
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function whole(text)
if not text or not string.find(text, '^%d+$') then return nil end
return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
local NOQUEUE = {err = 'DQNOQUEUE the queue has no key'}
local function unknown(layout)
if not layout or layout == '1' then return nil end
return {err = 'DQLAYOUT ' .. string.sub(string.gsub(layout, '[^!-~]', '?'), 1, 20)}
end
local layout = redis.pcall('HGET', KEYS[11], 'layout')
local refusal = type(layout) ~= 'table' and unknown(layout)
if refusal then return refusal end
local how = ARGV[1]
local alive, size, cursor, pages = 0, 0, '0', 0
while how ~= 'all' and pages < 100 and (alive == 0 or size < 1048576) do
local page = redis.pcall('HSCAN', KEYS[12], cursor, 'COUNT', 25)
for i = 2, page.err and 0 or #page[2], 2 do
local heard, lease = string.match(page[2][i], '^(%d+) (%d+) ')
heard, lease = whole(heard), whole(lease)
if heard and lease and math.abs(now - heard) <= math.max(lease, 3000000) then alive = alive + 1 end
size = size + #page[2][i]
end
pages, cursor = pages + 1, page[1]
if page.err or cursor == '0' then break end
end
local messages, schedules = redis.pcall('HLEN', KEYS[7]), redis.pcall('HLEN', KEYS[19])
if type(messages) == 'table' then messages = 0 end
if type(schedules) == 'table' then schedules = 0 end
if how == 'look' or how == 'empty' and alive + messages + schedules > 0 then return {alive, messages, schedules} end
local keys = redis.call('UNLINK', KEYS[1])
keys = keys + redis.call('UNLINK', KEYS[2])
keys = keys + redis.call('UNLINK', KEYS[3])
keys = keys + redis.call('UNLINK', KEYS[4])
keys = keys + redis.call('UNLINK', KEYS[5])
keys = keys + redis.call('UNLINK', KEYS[6])
keys = keys + redis.call('UNLINK', KEYS[7])
keys = keys + redis.call('UNLINK', KEYS[8])
keys = keys + redis.call('UNLINK', KEYS[9])
keys = keys + redis.call('UNLINK', KEYS[10])
keys = keys + redis.call('UNLINK', KEYS[11])
keys = keys + redis.call('UNLINK', KEYS[12])
keys = keys + redis.call('UNLINK', KEYS[13])
keys = keys + redis.call('UNLINK', KEYS[14])
keys = keys + redis.call('UNLINK', KEYS[15])
keys = keys + redis.call('UNLINK', KEYS[17])
keys = keys + redis.call('UNLINK', KEYS[19])
keys = keys + redis.call('UNLINK', KEYS[16])
keys = keys + redis.call('UNLINK', KEYS[18])
keys = keys + redis.call('UNLINK', KEYS[20])
keys = keys + redis.call('UNLINK', KEYS[21])
if keys == 0 then return NOQUEUE end
return {alive, messages, schedules}
