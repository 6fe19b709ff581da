package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
)

// An asynqQueue is a queue of github.com/hibiken/asynq, as versions 0.18 to 0.26 keep it:
//
//	asynq:queues                the set of the names of all queues
//	asynq:{<queue>}:pending     list of ids, the oldest at the end; also active
//	asynq:{<queue>}:scheduled   sorted set of ids by unix seconds; also retry, archived, completed, lease
//	asynq:{<queue>}:g:<group>   sorted set of ids that wait for others of their group; the set groups has the names
//	asynq:{<queue>}:t:<id>      hash of a task: msg is its protobuf message; state, unique_key (the key of its lock), …
//	asynq:servers               sorted set of the keys of server infos, by the unix seconds at which they end
type asynqQueue struct {
	cli  redis.UniversalClient
	name string
}

// kindHeader says a message's kind to handlers of the package typed.
const kindHeader = "kind"

// asynqGrace is how long after the end of its lease a task counts as nobody's: asynq itself waits 30 s.
const asynqGrace = time.Minute

func (q *asynqQueue) base() string { return "asynq:{" + q.name + "}:" }

func (q *asynqQueue) find(ctx context.Context) error {
	names, err := q.cli.SMembers(ctx, "asynq:queues").Result()
	if err != nil || slices.Contains(names, q.name) {
		return err
	}
	return fail(exitNotFound, "asynq has no queue %q%s", q.name, didYouMean(q.name, names))
}

func (q *asynqQueue) structures(now time.Time) []structure {
	b := q.base()
	return []structure{
		{name: "pending", key: b + "pending", list: true},
		{name: "scheduled", key: b + "scheduled"},
		{name: "retry", key: b + "retry"},
		{name: "active", key: b + "active", list: true, leases: b + "lease", latest: float64(now.Add(-asynqGrace).Unix())},
	}
}

func (q *asynqQueue) task(id string) string { return q.base() + "t:" + id }

func (q *asynqQueue) load(ctx context.Context, now time.Time, claims []claim) ([]foreignMessage, error) {
	found := make([]foreignMessage, len(claims))
	texts, err := readEach(ctx, q.cli, claims, func(p redis.Pipeliner, id string) *redis.StringCmd {
		return p.HGet(ctx, q.task(id), "msg")
	})
	locks := map[int]string{}
	for i, text := range texts {
		found[i] = text.message(func() (m foreignMessage, err error) {
			m, locks[i], err = asynqMessage(text.text, claims[i], now)
			return m, err
		})
	}
	return found, errors.Join(err, q.keepLocks(ctx, claims, found, locks))
}

// keepLocks makes the lock of a task of asynq.Unique the key of its message: the task's own lock is given up when it is
// settled, and what old senders send afterwards must not be a second one. A task whose lock is over is unique no more.
func (q *asynqQueue) keepLocks(ctx context.Context, claims []claim, found []foreignMessage,
	locks map[int]string) error {
	var locked []claim
	var of []int
	for i, lock := range locks {
		if strings.HasPrefix(lock, q.base()) && found[i].problem == "" && len(lock)-len(q.base()) <= 512 {
			locked, of = append(locked, claim{id: lock}), append(of, i)
		}
	}
	if len(locked) == 0 {
		return nil
	}
	owners, err := readEach(ctx, q.cli, locked, func(p redis.Pipeliner, lock string) *redis.StringCmd {
		return p.Get(ctx, lock)
	})
	if err != nil {
		return err
	}
	for n, i := range of {
		if owners[n].text == claims[i].id {
			key := strings.TrimPrefix(locked[n].id, q.base())
			found[i].key, found[i].options = key, append(found[i].options, delayqueue.WithKey(key, delayqueue.Keep))
		}
	}
	return nil
}

// asynqSettle deletes tasks as asynq does, with their locks, and the claims on them: of a claim that is not there any
// more, another import did it.
//
// KEYS: claims, tasks; ARGV: member and id for each task
var asynqSettle = redis.NewScript(`
redis.call('ZCARD', KEYS[1])
for i = 2, #KEYS do
  if redis.call('ZREM', KEYS[1], ARGV[2 * i - 3]) == 1 and redis.call('TYPE', KEYS[i]).ok == 'hash' then
    local lock = redis.call('HGET', KEYS[i], 'unique_key')
    if lock and lock ~= '' and redis.call('TYPE', lock).ok == 'string' and
      redis.call('GET', lock) == ARGV[2 * i - 2] then
      redis.call('DEL', lock)
    end
    redis.call('DEL', KEYS[i])
  end
end
return 0`)

func (q *asynqQueue) settle(ctx context.Context, claims string, sent []claim) error {
	keys := []string{claims}
	var args []any
	for _, c := range sent {
		keys = append(keys, q.task(c.id))
		args = append(args, c.member, c.id)
	}
	return asynqSettle.Run(ctx, q.cli, keys, args...).Err()
}

func (q *asynqQueue) left(ctx context.Context) (map[string]int64, error) {
	var failed error
	left := map[string]int64{}
	add := func(why string, cmd *redis.IntCmd) {
		n, err := cmd.Result()
		left[why] += n
		failed = errors.Join(failed, err)
	}
	b := q.base()
	add("active", q.cli.LLen(ctx, b+"active"))
	add("archived", q.cli.ZCard(ctx, b+"archived"))
	add("completed", q.cli.ZCard(ctx, b+"completed"))
	groups, err := q.cli.SMembers(ctx, b+"groups").Result()
	for _, group := range groups {
		add(leftGroups, q.cli.ZCard(ctx, b+"g:"+group))
	}
	sets, err2 := q.cli.ZRange(ctx, b+"aggregation_sets", 0, -1).Result()
	for _, set := range sets {
		add(leftGroups, q.cli.ZCard(ctx, set))
	}
	return left, errors.Join(failed, err, err2)
}

// A task's fields that are of use, by their numbers in asynq's message.
type asynqTask struct {
	kind, id, lock, group                        string // 1, 3, 10, 14
	payload                                      []byte // 2
	headers                                      map[string]string
	retry, retried, timeout, deadline, retention int64 // 5, 6, 8, 9, 12
}

// decodeAsynq reads asynq's TaskMessage, as its asynq.proto says.
func decodeAsynq(text []byte) (t asynqTask, err error) {
	t.headers = map[string]string{}
	for len(text) > 0 {
		number, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return t, protowire.ParseError(n)
		}
		text = text[n:]
		numbers := map[protowire.Number]*int64{5: &t.retry, 6: &t.retried, 8: &t.timeout, 9: &t.deadline, 12: &t.retention}
		texts := map[protowire.Number]*string{1: &t.kind, 3: &t.id, 10: &t.lock, 14: &t.group}
		switch to := numbers[number]; {
		case kind == protowire.VarintType && to != nil:
			var v uint64
			v, n = protowire.ConsumeVarint(text)
			*to = int64(v)
		case kind == protowire.BytesType && (number == 2 || number == 15 || texts[number] != nil):
			var v []byte
			if v, n = protowire.ConsumeBytes(text); n < 0 {
				break
			}
			if number == 2 {
				t.payload = v
			} else if number == 15 {
				err = t.header(v)
			} else {
				*texts[number] = string(v)
			}
		default:
			n = protowire.ConsumeFieldValue(number, kind, text)
		}
		if n < 0 {
			err = protowire.ParseError(n)
		}
		if err != nil {
			return t, err
		}
		text = text[n:]
	}
	return t, nil
}

// header reads an entry of the map of headers: 1 is its name, 2 its value.
func (t *asynqTask) header(entry []byte) error {
	var pair [3]string
	for len(entry) > 0 {
		number, kind, n := protowire.ConsumeTag(entry)
		if n < 0 {
			return protowire.ParseError(n)
		}
		entry = entry[n:]
		if kind == protowire.BytesType && (number == 1 || number == 2) {
			var v []byte
			v, n = protowire.ConsumeBytes(entry)
			pair[number] = string(v)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, entry)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		entry = entry[n:]
	}
	t.headers[pair[1]] = pair[2]
	return nil
}

// asynqMessage makes a message of a task. Its problem is an error. lock is the key of the lock of a task without an
// id of somebody's choice, if asynq.Unique was asked for.
func asynqMessage(text string, c claim, now time.Time) (m foreignMessage, lock string, err error) {
	t, err := decodeAsynq([]byte(text))
	switch {
	case err != nil:
		return m, "", err
	case t.id != c.id || t.kind == "":
		return m, "", fmt.Errorf("task %q of type %q", t.id, t.kind)
	case t.group != "":
		m.problem = leftGroups // asynq puts it there when it is due
		return m, "", nil
	}
	m.payload = string(t.payload)
	m.options = append(m.options, delayqueue.WithRetryCount(int(max(t.retry-t.retried, 0))))
	const longest = int64(150 * 365 * 24 * time.Hour / time.Second)
	if t.timeout > 0 && t.timeout < longest {
		m.options = append(m.options, delayqueue.WithTimeout(time.Duration(t.timeout)*time.Second))
	}
	if t.retention > 0 {
		m.options = append(m.options, delayqueue.WithRetention(time.Duration(min(t.retention, 90*24*60*60))*time.Second))
	}
	for name, value := range t.headers {
		if name == kindHeader {
			name = "asynq-" + kindHeader
		}
		m.options = append(m.options, delayqueue.WithHeader(name, value))
	}
	m.options = append(m.options, delayqueue.WithHeader(kindHeader, t.kind))
	if err := delayqueue.Describe(m.options...).Err; err != nil {
		return m, "", err
	}
	switch due := max(int64(c.due), now.Unix()); {
	case t.deadline <= 0 || float64(t.deadline) >= latestDue: // none
	case t.deadline > due+1:
		m.options = append(m.options, delayqueue.WithDeadline(time.Unix(t.deadline, 0)))
	default: // over when it is due, so it is garbage then
		m.options = append(m.options, delayqueue.WithMsgTTL(time.Millisecond))
	}
	if _, err := uuid.Parse(t.id); err != nil && len(t.id) <= 512 { // somebody chose it
		m.key, m.options = t.id, append(m.options, delayqueue.WithKey(t.id, delayqueue.Keep))
		return m, "", nil
	}
	return m, t.lock, nil
}
