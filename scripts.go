package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file has one typed call for each script that sends, consumes or takes back, but for scripts_put.go and
// scripts_settle.go; scripts_monitor.go has those for looking and steering.

// maxBatch is how many messages one script call moves at most, and maxBatchBytes where
// a batch stops growing: both keep the server from being held for long.
const (
	maxBatch      = 500
	maxBatchBytes = 1 << 20
)

// A sendMessage is a message as it is sent.
type sendMessage struct {
	id      string
	key     string
	when    when
	version byte        // of its envelope
	text    string      // its envelope, as encode makes it
	put     *putOptions // nil: send stores it, else put
}

// alike says whether the send script can take two messages in one run.
func (m *sendMessage) alike(other *sendMessage) bool {
	return m.when.absolute && other.when.absolute || m.when == other.when && m.version == other.version
}

// delay is what the scripts are told of it: nothing if it is absolute, for then it is in the envelope.
func (m *sendMessage) delay() any {
	if m.when.absolute {
		return ""
	}
	return &m.when.us
}

// A sendRequest is a batch, and how many replicas are to confirm it within what time.
type sendRequest struct {
	messages []*sendMessage
	replicas int
	timeout  time.Duration
}

// A sendReply is what became of a batch.
type sendReply struct {
	now     int64          // unix us of the call that stored it
	refused map[int]string // index -> id of the message that holds the key
	answers []sendAnswer   // of put: one for each message, or for the first of them; the others are to be sent by another call
}

// singleBytes is how long a message may be that is sent by the script single.
const singleBytes = 2048

// single says whether that script is enough, which writes version 1.
func (q *sendRequest) single() bool {
	m := q.messages[0]
	return q.replicas == 0 && len(q.messages) == 1 && m.put == nil && m.key == "" && m.version == flagsVersion &&
		len(m.text) <= singleBytes-envelopeHead
}

// send stores messages; it is one attempt of the caller's present call.
func (s *store) send(ctx context.Context, c *caller, q sendRequest) (sendReply, error) {
	if q.single() {
		if now, err := s.sendSingle(ctx, c, q.messages[0]); err != nil || now > 0 {
			return sendReply{now: now}, err
		}
	}
	return s.sendMany(ctx, c, q)
}

func (s *store) sendMany(ctx context.Context, c *caller, q sendRequest) (sendReply, error) {
	sc, args, read := sendScript, (*sendRequest).args, (*reply).stored
	if q.messages[0].put != nil {
		sc, args, read = putScript, (*sendRequest).putArgs, (*reply).put
	}
	if q.replicas > 0 {
		r, err := s.runOnReplicas(ctx, sc, args(&q, c), q.replicas, q.timeout)
		if err != nil && !errors.Is(err, ErrNotReplicated) {
			return sendReply{}, err
		}
		out, bad := read(r, len(q.messages))
		return out, errors.Join(bad, err)
	}
	return read(s.run(ctx, sc, args(&q, c)), len(q.messages))
}

// sendSingle returns 0 if the script leaves the message to send.
func (s *store) sendSingle(ctx context.Context, c *caller, m *sendMessage) (now int64, err error) {
	args := []any{c.name(), c.number(), m.delay(), &m.id, &m.text}
	cmd, err := eval(ctx, s, singleScript, args, sizeOf(args), redis.NewIntCmd)
	if err != nil {
		if noNumber := new(strconv.NumError); errors.As(err, &noNumber) {
			err = fmt.Errorf("%w: single: %w", ErrBadReply, err)
		}
		return 0, err
	}
	if now = cmd.Val(); now < 0 {
		return 0, fmt.Errorf("%w: single: %d", ErrBadReply, now)
	}
	return now, nil
}

func (q *sendRequest) args(c *caller) []any {
	keyed := slices.ContainsFunc(q.messages, func(m *sendMessage) bool { return m.key != "" })
	args := append(make([]any, 0, 5+2*len(q.messages)), c.name(), c.number(), keyed)
	for rest := q.messages; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].alike(rest[0]) {
			n++
		}
		args = append(args, rest[0].delay(), n, rest[0].version)
		for _, m := range rest[:n] {
			args = append(args, &m.id, &m.text)
		}
		rest = rest[n:]
	}
	return args
}

// stored reads the reply to a send of n messages.
func (r *reply) stored(n int) (sendReply, error) {
	out := sendReply{now: r.int64(), refused: r.refused(n)}
	if err := r.err("send"); err != nil {
		return sendReply{}, err
	}
	return out, nil
}

// forget forgets some callers that are heard of no more.
func (s *store) forget(ctx context.Context) error {
	r := s.run(ctx, forgetScript, nil)
	r.number()
	return r.err("forget")
}

// A fetchRequest is what a poll asks for.
type fetchRequest struct {
	want            int    // deliveries
	rearm           bool   // set the alarm in any case
	byAlarm         bool   // the consumer is idle: go by the alarm where that can be
	holdsLastChance bool   // the consumer holds a message on its last chance: poison if it is lost once more
	presence        string // what the consumer tells of itself; presenceLeaving; "": nothing new
	bytes           int    // of envelopes that the reply may hold; 0: maxBatchBytes
	expected        int    // bytes of the message that the reply will hold; 0: not known
	probe           bool   // hand out nothing; of what a lost reply held, say only what it is
	seed            int32  // by which it chooses; 0: anything

	settings *fetchSettings
	limits   Limits     // that the consumer asks for
	began    *time.Time // if not nil, is set to when the attempt has a connection, of one that fails perhaps later
	behind   *jointCall // with which the first attempt is made; nil: with none
}

// fetchSettings are what a consumer asks for; the most that any consumer of the queue asks for holds for all.
type fetchSettings struct {
	lease      time.Duration
	maxLosses  int
	garbageAge time.Duration // 0: for ever
	garbageMax int           // 0: any number
	doneMax    int           // 0: any number
}

// A fetchReply is what a poll brought.
type fetchReply struct {
	now, next serverTime // next 0: nothing is waiting
	tags      []string
	envelopes []string
	fails     []string // for each of the first tags, "" if there is none; the others, from pending, have none
	dead      []deadMessage
	lost      int
	dropped   int
	replaced  int // messages that ended because the deliveries that were lost, or of a lost reply, had been superseded
	overflow  int // overflow in PROTOCOL.md
	first     int // 1 if no consumer has called before
	agreed    fetchSettings
	limits    agreedLimits
	held      []heldMessage // of a lost reply, if no envelopes were asked for

	parts map[int][]string // of groups, but for the first of each; by index in tags, and by -1 - index in dead
}

type deadMessage struct{ id, envelope, fail string }

// heldMessage is what is known of a delivery whose message was not asked for.
type heldMessage struct {
	tag       string
	size      int    // of its envelope
	fail, key string // the key only if one more loss makes it poison
}

// unbounded is what the fetch script takes for no bound: a century, in us, or as many messages.
const unbounded = 3155760000000000

func (s *store) fetch(ctx context.Context, c *caller, q fetchRequest) (fetchReply, error) {
	args := q.args(c)
	return s.runAs(ctx, fetchScript, args, sizeOf(args)+q.expected, func(ctx context.Context, words ...any) *redis.StringSliceCmd {
		if q.began != nil {
			*q.began = time.Now()
		}
		return redis.NewStringSliceCmd(ctx, words...)
	}).fetched()
}

// args are the arguments of the call.
func (q *fetchRequest) args(c *caller) []any {
	bytes := cmp.Or(q.bytes, maxBatchBytes)
	if q.probe {
		bytes = 0
	}
	set, alarm := q.settings, 0
	if q.rearm {
		alarm = 1
	} else if q.byAlarm {
		alarm = 2
	}
	return append(c.args(13), q.want, set.lease.Microseconds(), set.maxLosses, set.garbageAge.Microseconds(), set.garbageMax,
		alarm, cmp.Or(q.seed, 1+rand.Int32N(1<<31-2)), ErrPoison.Error(), q.holdsLastChance, q.presence, bytes, set.doneMax, q.limits.text())
}

// fetched reads the reply of fetch.
func (r *reply) fetched() (fetchReply, error) {
	var got fetchReply
	got.now, got.next = serverTime(r.int64()), serverTime(r.int64())
	got.lost, got.dropped, got.overflow, got.first = r.number(), r.number(), r.number(), r.number()
	got.agreed = r.agreed()
	got.limits = r.limits()
	given, fails, dead, held := r.number(), r.number(), r.number(), r.number()
	got.replaced = r.number()
	pairs := r.take(2 * min(given, maxBatch))
	got.tags, got.envelopes = make([]string, len(pairs)/2), make([]string, len(pairs)/2)
	for i := range got.tags {
		got.tags[i], got.envelopes[i] = pairs[2*i], pairs[2*i+1]
	}
	got.fails = r.take(fails)
	for len(got.dead) < dead && r.bad == nil {
		got.dead = append(got.dead, deadMessage{r.text(), r.text(), r.text()})
	}
	if held < 0 || got.replaced < 0 {
		r.fail("%d held, %d replaced", held, got.replaced)
	}
	for len(got.held) < held && r.bad == nil {
		got.held = append(got.held, heldMessage{r.text(), r.number(), r.text(), r.text()})
	}
	got.parts = r.parts(len(got.tags), len(got.dead))
	if err := r.err("fetch"); err != nil {
		return fetchReply{}, err
	}
	return got, nil
}

// parts reads those of groups, to the end of the reply.
func (r *reply) parts(given, dead int) (parts map[int][]string) {
	for len(r.rest) > 0 && r.bad == nil {
		nth, n := r.number(), r.number()
		if nth == 0 || nth > given || -nth > dead {
			r.fail("parts of message %d", nth)
			return nil
		}
		if parts == nil {
			parts = map[int][]string{}
		}
		if nth > 0 {
			nth--
		}
		parts[nth] = r.take(n)
	}
	return parts
}

// leaseState is what extend says of a delivery.
type leaseState int

const (
	leaseRenewed leaseState = iota
	leaseLost               // it is not held any more, but its message lives on elsewhere
	leaseGone               // its message is nowhere
)

// extend renews the leases of deliveries, and returns what became of each.
func (s *store) extend(ctx context.Context, lease time.Duration, tags []string) ([]leaseState, error) {
	args := append(make([]any, 0, 1+2*len(tags)), lease.Microseconds())
	ids := make([]string, len(tags))
	for i := range tags {
		ids[i], _ = splitTag(tags[i])
		args = append(args, &tags[i], &ids[i])
	}
	r := s.run(ctx, extendScript, args)
	states := make([]leaseState, len(tags))
	for i := range states {
		if states[i] = leaseState(r.number()); states[i] < leaseRenewed || states[i] > leaseGone {
			r.fail("answer %d", states[i])
		}
	}
	return states, r.err("extend")
}

// overrun keeps the places of deliveries whose handlers run on, for a lease, or frees them if that is 0.
func (s *store) overrun(ctx context.Context, lease time.Duration, tags []string) error {
	args := append(make([]any, 0, 1+len(tags)), lease.Microseconds())
	for i := range tags {
		args = append(args, &tags[i])
	}
	r := s.run(ctx, overrunScript, args)
	r.number()
	return r.err("overrun")
}

// intercept takes out a message, named by "id" and its id or by "key" and its key; with running also one that is being
// handled. It does not fill in Intercepted.
func (s *store) intercept(ctx context.Context, c *caller, by, what string, running bool) (got InterceptResult, err error) {
	r := s.run(ctx, interceptScript, append(c.args(3), by, what, running))
	got.State = stateOf(r, r.text())
	got.ID = r.text()
	return got, r.err("intercept")
}
