-- Shared by the scripts that look for one message. In garbage and done the id stands for it, elsewhere its tag.

-- delivery(record) is the number of a message's delivery, by its fail record, and tagof(id, record) its tag.
local function delivery(record)
  local n = string.match(record or '', '^([1-9]%d*) ')
  return n and #n < 10 and n or '1'
end
local function tagof(id, record)
  local n = delivery(record)
  return n == '1' and id or n .. ':' .. id
end

-- locate(tag, id, only) is in which sorted set a delivery is, and its score; nil if in none, or not in the one that is
-- asked about ('': any). It may be in ready then, a list, where a search costs as much as the list is long.
local function locate(tag, id, only)
  local score = (only == '' or only == 'pending') and redis.call('ZSCORE', KEYS.pending, tag)
  if score then return 'pending', score end
  score = (only == '' or only == 'unack') and redis.call('ZSCORE', KEYS.unack, tag)
  if score then return 'unack', score end
  score = (only == '' or only == 'retry') and redis.call('ZSCORE', KEYS.retry, tag)
  if score then return 'retry', score end
  score = (only == '' or only == 'garbage') and redis.call('ZSCORE', KEYS.garbage, id)
  if score then return 'garbage', score end
  score = (only == '' or only == 'done') and redis.call('ZSCORE', KEYS.done, id)
  if score and scored(score) > now then return 'done', score end -- what is over is not deleted yet
end
