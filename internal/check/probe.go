package check

import (
	"context"
	"fmt"
	"slices"
)

// probeScript reads, at one instant, some messages, entries and message keys with what they depend on, the whole of
// wake and state, and the heads of pending, retry, ready and holds.
//
// KEYS     pending, ready, unack, retry, garbage, msg, fail, key, wake, state, done, result, holds, parts, lease,
// lanes, waiting
// ARGV     bytes of a head; then 'id', 'tag', 'key', 'part', 'lease', 'count', 'member' or 'lane' and what it is, any
// number of times; of 'lease' and 'count' a member of unack or a field of lease, of 'member' a member of lanes
// Returns  {seconds, microseconds, then for each part its name and two values:
//
//	'pending' … 'garbage', 'done', tag, score; 'unack', member, score; 'lease', field, value;
//	'count', lease, how many are held;
//	'msg', id, {bytes, head}; 'fail', id, record; 'key', key, id; 'holds', key, score;
//	'wake', member, score; 'state', field, value; 'result', id, bytes; 'parts', field, bytes; 'left', ':' and a key, ids;
//	'lanes', member, score}
//
// Cost     O(log n) for each, for each message of a 'count', and for each that has a turn of the lane of a message;
// O(ready) for each tag, O(wake) and O(state)
// Keeps    every invariant: it writes nothing
const probeScript = `
local bytes = tonumber(ARGV[1])
local names = {'pending', 'ready', 'unack', 'retry', 'garbage', [11] = 'done', [17] = 'waiting'}
local time = redis.call('TIME')
local out = {time[1], time[2]}
local function add(name, item, value)
  out[#out + 1], out[#out + 2], out[#out + 3] = name, item, value
end
local tags, ids, keys, parts, leases, lanes, members = {}, {}, {}, {}, {}, {}, {}
local todo = {}
local function part(name)
  if parts[name] then return end
  parts[name] = true
  if string.match(name, ':0$') and string.byte(name) ~= 58 then
    local missing = redis.call('HGET', KEYS[14], name)
    if missing then add('left', name, missing) end
  elseif string.byte(name) == 58 then
    local list = redis.call('HGET', KEYS[14], name)
    if list then add('left', name, list) end
    for id in string.gmatch(list or '', '%S+') do
      if #todo < 1000 then todo[#todo + 1] = id end
    end
  elseif redis.call('HEXISTS', KEYS[14], name) == 1 then add('parts', name, redis.call('HSTRLEN', KEYS[14], name)) end
end
local function field(envelope, kind) -- of version 2: where it begins, and its bytes
  local hi, lo = string.byte(envelope, 18, 19)
  local i = string.byte(envelope, 1) == 2 and lo and 20 + hi * 256 + lo
  while i and (string.byte(envelope, i) or 0) >= kind do -- fields of few bytes, a message key, or a lane
    local this, low, high = string.byte(envelope, i, i + 2)
    if not high then return end
    local size = low > 127 and low - 128 + 128 * high or low
    i = i + (low > 127 and 3 or 2)
    if this == kind then return i, size end
    i = i + size
  end
end
local function group(id, envelope)
  local i, size = field(envelope, 129)
  if not i then return end
  if size > 11 then part(':' .. string.sub(envelope, i + 11, i + size - 1)) end
  for n = 2, tonumber(string.match(string.sub(envelope, i, i + 3), '^%d+$')) or 1 do part(id .. ':' .. n) end
end
local function tag(name)
  if tags[name] then return end
  tags[name] = true
  for _, i in ipairs({1, 2, 4, 5, 11, 17}) do
    if i == 2 then
      for _ = 1, #redis.call('LPOS', KEYS[2], name, 'COUNT', 2) do add('ready', name, '0') end
    else
      local score = redis.call('ZSCORE', KEYS[i], name)
      if score then add(names[i], name, score) end
    end
  end
end
local function member(name)
  if members[name] then return end
  members[name] = true
  local score, i = redis.call('ZSCORE', KEYS[16], name), string.find(name, '\0', 1, true)
  if score then add('lanes', name, score) end
  local named, n = string.match(name, '^(.*) (%d+) ...$', (i or 0) + 17)
  if i and string.byte(name, i + 1) == 0 then named, n = string.sub(name, i + 5), '1' end -- a turn
  if named then
    tag(n == '1' and named or n .. ':' .. named)
    todo[#todo + 1] = string.match(named, '^.*:(.*)$') or named
  end
end
local function lane(name) -- its turns, and the first that wait
  if lanes[name] then return end
  lanes[name] = true
  local wait = 0
  local from, to = '[' .. name .. '\0', '(' .. name .. '\1'
  for _, each in ipairs(redis.call('ZRANGEBYLEX', KEYS[16], from, to, 'LIMIT', 0, 106)) do
    if string.byte(each, #name + 2) ~= 0 then wait = wait + 1 end
    if wait < 6 then member(each) end
  end
end
local function inlane(id, envelope, current) -- of a message
  local i, size = field(envelope, 136)
  if not i or size < 4 then return end
  local width, name = string.sub(envelope, i, i + 2), string.sub(envelope, i + 3, i + size - 1)
  lane(name)
  for _, n in ipairs({'1', current}) do
    local due = redis.call('ZSCORE', KEYS[17], n == '1' and id or n .. ':' .. id)
    if due then
      member(name .. '\0' .. string.format('%016.0f', tonumber(due) or 0) .. id .. ' ' .. n .. ' ' .. width)
    end
  end
end
local function key(name)
  if keys[name] then return end
  keys[name] = true
  local id = redis.call('HGET', KEYS[8], name)
  local till = redis.call('ZSCORE', KEYS[13], name)
  if till then add('holds', name, till) end
  if id then
    add('key', name, id)
    todo[#todo + 1] = id
  end
end
local function message(id)
  if ids[id] then return end
  ids[id] = true
  local envelope, record = redis.call('HGET', KEYS[6], id), redis.call('HGET', KEYS[7], id)
  local current
  if record then
    add('fail', id, record)
    local n = string.match(record, '^(%d+) ')
    current = n
    if n then tag(n .. ':' .. id) end
  end
  tag(id)
  if redis.call('HEXISTS', KEYS[12], id) == 1 then add('result', id, redis.call('HSTRLEN', KEYS[12], id)) end
  if envelope then
    add('msg', id, {#envelope, string.sub(envelope, 1, bytes)})
    group(id, envelope)
    inlane(id, envelope, current)
    part(id .. ':0')
    local hi, lo = string.byte(envelope, 18, 19)
    if lo and hi * 256 + lo > 0 then key(string.sub(envelope, 20, 19 + hi * 256 + lo)) end
  end
end
local function lease(field)
  local name = string.match(field, '^(.*)#$') or field
  if leases[name] then return end
  leases[name] = true
  local score, list = redis.call('ZSCORE', KEYS[3], name), redis.call('HGET', KEYS[15], name)
  local left = redis.call('HGET', KEYS[15], name .. '#')
  if score then add('unack', name, score) end
  if list then add('lease', name, list) end
  if left then add('lease', name .. '#', left) end
end
local function count(field)
  local name, held = string.match(field, '^(.*)#$') or field, 0
  for listed in string.gmatch(redis.call('HGET', KEYS[15], name) or '', '[^ ]+') do
    local n, id = string.match(listed, '^(%d+):(.*)$')
    local record = redis.call('HGET', KEYS[7], id or listed) or ''
    local current = string.match(record, '^(%d+) ') or '1'
    if current == (n or '1') and redis.call('HEXISTS', KEYS[6], id or listed) == 1 then held = held + 1 end
  end
  add('count', name, held)
end
local look = {id = message, tag = tag, key = key, part = part, lease = lease, count = count,
  member = member, lane = lane}
for i = 2, #ARGV, 2 do look[ARGV[i]](ARGV[i + 1]) end
member('') -- which no ARGV says
for _, i in ipairs({1, 4, 11}) do
  local head = redis.call('ZRANGE', KEYS[i], 0, 0)
  if head[1] then
    tag(head[1])
    message(string.match(head[1], '^.*:(.*)$') or head[1])
  end
end
local head = redis.call('LINDEX', KEYS[2], 0)
if head then
  tag(head)
  message(string.match(head, '^.*:(.*)$') or head)
end
local first = redis.call('ZRANGE', KEYS[13], 0, 0)
if first[1] then key(first[1]) end
while #todo > 0 do message(table.remove(todo)) end
local marks = redis.call('ZRANGE', KEYS[9], 0, 999, 'WITHSCORES')
for i = 1, #marks, 2 do add('wake', marks[i], marks[i + 1]) end
local fields = redis.call('HGETALL', KEYS[10])
for i = 1, #fields, 2 do add('state', fields[i], fields[i + 1]) end
return out
`

// probed are the KEYS of the script.
var probed = []string{"pending", "ready", "unack", "retry", "garbage", "msg", "fail", "key", "wake", "state",
	"done", "result", "holds", "parts", "lease", "lanes", "waiting"}

// probe is a State that holds these alone. The frame and what is there for Monitors is as it was read before.
func (p *pager) probe(ctx context.Context, some []suspect) (*State, error) {
	var keys []string
	for _, structure := range probed {
		keys = append(keys, p.state.Queue.Key(structure))
	}
	args := []any{headBytes}
	for _, s := range some {
		for _, what := range [][2]string{{"id", s.id}, {"tag", s.tag}, {"key", s.key}, {"part", s.part},
			{"lease", s.lease}, {"count", s.count}, {"member", s.member}, {"lane", s.lane}} {
			if what[1] != "" {
				args = append(args, what[0], what[1])
			}
		}
	}
	reply, err := p.cli.Eval(ctx, probeScript, keys, args...).Slice()
	if err != nil {
		return nil, err
	}
	if len(reply) < 2 || (len(reply)-2)%3 != 0 {
		return nil, fmt.Errorf("a look of %d parts", len(reply))
	}
	s := newState(p.state.Queue)
	s.TTLs, s.Strays, s.Consumers, s.History, s.Sequences = p.state.TTLs, p.state.Strays, p.state.Consumers,
		p.state.History, p.state.Sequences
	s.Journal = p.state.Journal
	if err := s.setClock(reply); err != nil {
		return nil, err
	}
	p.state.Now = s.Now
	for part := range slices.Chunk(reply[2:], 3) {
		if err := s.take(part); err != nil {
			return nil, err
		}
	}
	(&pager{state: s}).order()
	return s, nil
}

// take reads one part of a look.
func (s *State) take(part []any) error {
	structure, ok1 := part[0].(string)
	item, ok2 := part[1].(string)
	if !ok1 || !ok2 {
		return fmt.Errorf("unexpected part {%T, %T} of a look", part[0], part[1])
	}
	switch value := part[2].(type) {
	case []any: // of msg
		if len(value) == 2 {
			size, ok1 := value[0].(int64)
			head, ok2 := value[1].(string)
			if ok1 && ok2 {
				s.Messages[item] = decodeHead(head, int(size))
				return nil
			}
		}
	case int64:
		switch structure {
		case "count":
			l := s.Leases[item]
			l.Held = int(value)
			s.Leases[item] = l
		case "result":
			s.Results[item] = int(value)
		default:
			s.Parts[item] = int(value)
		}
		return nil
	case string:
		switch structure {
		case "left":
			s.setPart(item, value, len(value))
		case "ready":
			s.fill(structure, []string{item})
		default:
			s.fill(structure, []string{item, value})
		}
		return nil
	}
	return fmt.Errorf("unexpected value %v of %s in a look", part[2], structure)
}
