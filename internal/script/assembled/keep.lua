-- KEYS: unack, lease, msg, fail, state
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local function whole(text)
if not text or not string.find(text, '^%d+$') then return nil end
return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
local function split(tag)
local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
if n and n ~= '1' and #n < 10 then return tonumber(n), id end
return 1, tag
end
local function lend(name, ends, tags)
local list = table.concat(tags, ' ')
redis.call('ZADD', KEYS[1], ends, name)
redis.call('HSET', KEYS[2], name, list, name .. '#', #tags)
return list
end
local function lendrest(name, ends, tags)
name = string.gsub(name, '~+$', '')
repeat name = name .. '~' until redis.call('HEXISTS', KEYS[2], name) == 0
lend(name, ends, tags)
end
local function delivery(record)
local n = string.match(record or '', '^([1-9]%d*) ')
return n and #n < 10 and n or '1'
end
local function isheld(id, n)
return redis.call('HEXISTS', KEYS[3], id) == 1 and tonumber(delivery(redis.call('HGET', KEYS[4], id))) <= n
end
local name, mine, rest, own = ARGV[1], {}, {}, {}
for i = 2, #ARGV do own[ARGV[i]] = true end
local ends, list = redis.call('ZSCORE', KEYS[1], name), redis.call('HGET', KEYS[2], name)
local canceled = redis.call('HGET', KEYS[5], 'canceled')
redis.call('HLEN', KEYS[3])
redis.call('HLEN', KEYS[4])
redis.call('ZREM', KEYS[1], '')
for tag in string.gmatch(ends and list or '', '%S+') do
local n, id = split(tag)
if own[tag] then
mine[#mine + 1] = tag
elseif isheld(id, n) then
rest[#rest + 1] = tag
end
end
if not mine[1] then return {0} end
lend(name, ends, mine)
if rest[1] then
lendrest(name, ends, rest)
redis.call('HSET', KEYS[5], 'canceled', us(math.max(now, (whole(canceled) or 0) + 1)))
end
return {#rest}
