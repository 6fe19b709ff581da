-- KEYS: state
local function shardsof(said)
local n = tonumber(string.match(said or '', '^[1-9]%d?$') or '')
return n and n <= 64 and n or nil
end
local said, stored, seen = unpack(redis.call('HMGET', KEYS[1], 'shards', 'in:stored', 'seen'), 1, 3)
local has, n = shardsof(said) or (stored or seen) and 1, tonumber(ARGV[1])
if n == 0 or has and not ARGV[2] then return has or 0 end
redis.call('HSET', KEYS[1], 'shards', ARGV[1])
return n
