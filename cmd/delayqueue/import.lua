-- import takes messages out of a structure of another library's queue, and claims them for an import: whoever runs it owns
-- them from then on, and their own consumers cannot get them.
--
-- KEYS: numbers, claims, structure, leases ('structure' again: it has none)
-- ARGV: target, number that the target's sequence has come to, 'list' or 'set', score up to which one may be taken ('': any;
--       of a list with leases: the end of its lease), name of the structure, id, ...
-- Returns how many it took.
-- Claims are numbered in the order in which they are made. One is <structure>:<score>:<id>.

local target, number, kind, latest, name = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]
local leased = KEYS[4] ~= KEYS[3]
number = math.max(tonumber(redis.call('HGET', KEYS[1], target) or '') or 0, number)
redis.call('ZCARD', KEYS[2])
if kind == 'list' then redis.call('LLEN', KEYS[3]) else redis.call('ZCARD', KEYS[3]) end
if leased then redis.call('ZCARD', KEYS[4]) end
redis.call('ZADD', KEYS[2], 'XX', 0, '') -- changes nothing: a full server refuses it before anything is taken

-- may(score) says whether one of this score may be taken.
local function may(score)
  return score and (not latest or (tonumber(score) or math.huge) <= latest)
end

local taken = 0
for i = 6, #ARGV do
  local id, score, got = ARGV[i], '0', 0
  if kind ~= 'list' then
    score = redis.call('ZSCORE', KEYS[3], id)
    if may(score) then got = redis.call('ZREM', KEYS[3], id) end
  elseif not leased or may(redis.call('ZSCORE', KEYS[4], id)) then
    got = redis.call('LREM', KEYS[3], -1, id) -- the oldest stand at the end
    if leased then redis.call('ZREM', KEYS[4], id) end
  end
  if got > 0 then
    taken = taken + 1
    redis.call('ZADD', KEYS[2], string.format('%.0f', number + taken), name .. ':' .. score .. ':' .. id)
  end
end
if taken > 0 then redis.call('HSET', KEYS[1], target, string.format('%.0f', number + taken)) end
return taken
