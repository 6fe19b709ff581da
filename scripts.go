package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file and store.go are the only ones that talk to Redis. Here is one typed call for each script.

// maxBatch is how many messages one script call moves at most, and maxBatchBytes where
// a batch stops growing: both keep the server from being held for long.
const (
	maxBatch      = 500
	maxBatchBytes = 1 << 20
)

// stored is what the send script did with a batch.
type stored struct {
	now     int64          // unix us of the call that stored it
	refused map[int]string // index -> id of the message that holds the key
}

// singleBytes is how long a message may be that is sent by the script single.
const singleBytes = 2048

// sentSingly says whether the script single is enough for a batch.
func sentSingly(batch []*outgoing) bool {
	return len(batch) == 1 && batch[0].key == "" && len(batch[0].text) <= singleBytes-envelopeHead
}

// send stores messages; it is one attempt of the caller's present call.
func (s *store) send(ctx context.Context, c *caller, batch []*outgoing, replicas int, timeout time.Duration) (stored, error) {
	if replicas > 0 {
		r, err := s.runOnReplicas(ctx, sendScript, sendArgs(c, batch), replicas, timeout)
		if err != nil && !errors.Is(err, ErrNotReplicated) {
			return stored{}, err
		}
		out, bad := storedOf(r, len(batch))
		return out, errors.Join(bad, err)
	}
	if sentSingly(batch) {
		m := batch[0]
		var delay any = &m.when.us
		if m.when.instant {
			delay = "" // it is in the envelope
		}
		now, err := eval(ctx, s, singleScript, []any{&c.id, c.number(), delay, &m.id, &m.text}, redis.NewIntCmd)
		if err != nil {
			return stored{}, err
		}
		if now.Val() < 0 {
			return stored{}, fmt.Errorf("%w: single: %d", ErrBadReply, now.Val())
		}
		if now.Val() > 0 {
			return stored{now: now.Val()}, nil
		}
	}
	r, err := s.run(ctx, sendScript, sendArgs(c, batch))
	if err != nil {
		return stored{}, err
	}
	return storedOf(r, len(batch))
}

// forget forgets some callers that are heard of no more, and says how many.
func (s *store) forget(ctx context.Context) (int, error) {
	r, err := s.run(ctx, forgetScript, nil)
	if err != nil {
		return 0, err
	}
	n := r.number()
	return n, r.err("forget")
}

func sendArgs(c *caller, batch []*outgoing) []any {
	keyed := slices.ContainsFunc(batch, func(m *outgoing) bool { return m.key != "" })
	args := append(make([]any, 0, 5+2*len(batch)), c.id, c.number(), keyed)
	for rest := batch; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].when.alike(rest[0].when) {
			n++
		}
		args = append(args, rest[0].when.String(), n)
		for _, m := range rest[:n] {
			args = append(args, &m.id, &m.text)
		}
		rest = rest[n:]
	}
	return args
}

// storedOf reads the reply to a send of n messages.
func storedOf(r *reply, n int) (stored, error) {
	out := stored{now: r.instant()}
	for _, pair := range strings.Fields(r.text()) {
		text, holder, ok := strings.Cut(pair, "=")
		i, err := strconv.Atoi(text)
		if !ok || err != nil || i < 1 || i > n {
			return stored{}, fmt.Errorf("%w: send: refused %q", ErrBadReply, pair)
		}
		if out.refused == nil {
			out.refused = make(map[int]string)
		}
		out.refused[i-1] = holder
	}
	return out, r.err("send")
}

// ask is what differs from one fetch of a run to the next.
type ask struct {
	want  int    // deliveries
	rearm bool   // set the alarm in any case
	holds bool   // the run holds a message on its last chance
	says  string // what the run says of itself; "-": it leaves; "": nothing new
	bytes int    // of envelopes that the reply may hold; 0: maxBatchBytes
	probe bool   // hand out nothing; of what a lost reply held, say only what it is
}

// fetchSettings are what a run asks for; the most that any run of the queue asks for holds for all.
type fetchSettings struct {
	lease      time.Duration
	maxLosses  int
	garbageAge time.Duration
	garbageMax int
}

// fetched is what one tick brought.
type fetched struct {
	now, next int64 // server's clock, unix us; next 0: nothing is waiting
	tags      []string
	envelopes []string
	fails     []string // for each of the first tags, "" if there is none; the others, from pending, have none
	dead      []deadMessage
	lost      int
	dropped   int
	trimmed   int
	first     int // 1 if no consumer has called before
	agreed    fetchSettings
	held      []heldMessage // of a lost reply, if no envelopes were asked for
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

func (s *store) fetch(ctx context.Context, c *caller, a ask, set *fetchSettings) (fetched, error) {
	bytes := cmp.Or(a.bytes, maxBatchBytes)
	if a.probe {
		bytes = 0
	}
	args := append(c.args(11), a.want, set.lease.Microseconds(), set.maxLosses, set.garbageAge.Microseconds(), set.garbageMax,
		a.rearm, 1+rand.Int32N(1<<31-2), ErrPoison.Error(), a.holds, a.says, bytes)
	r, err := s.run(ctx, fetchScript, args)
	if err != nil {
		return fetched{}, err
	}
	out := fetched{now: r.instant(), next: r.instant(), lost: r.number(), dropped: r.number(), trimmed: r.number(), first: r.number(), agreed: r.agreed()}
	n, fails, dead, held := r.number(), r.number(), r.number(), r.number()
	pairs := r.take(2 * min(n, maxBatch))
	out.tags, out.envelopes = make([]string, len(pairs)/2), make([]string, len(pairs)/2)
	for i := range out.tags {
		out.tags[i], out.envelopes[i] = pairs[2*i], pairs[2*i+1]
	}
	out.fails = r.take(fails)
	for len(out.dead) < dead && r.bad == nil {
		if d := r.take(3); d != nil {
			out.dead = append(out.dead, deadMessage{d[0], d[1], d[2]})
		}
	}
	if held < 0 {
		r.fail("%d held", held)
	}
	for len(out.held) < held && r.bad == nil {
		h := heldMessage{tag: r.text(), size: r.number(), fail: r.text(), key: r.text()}
		if r.bad == nil {
			out.held = append(out.held, h)
		}
	}
	if err := r.err("fetch"); err != nil {
		return fetched{}, err
	}
	return out, nil
}

// settled is what a settle did besides.
type settled struct {
	void    []int // indices of the outcomes whose delivery was not held any more
	trimmed int   // garbage deleted for want of room
}

// settle ends deliveries; outcomes must have plain acks first.
func (s *store) settle(ctx context.Context, c *caller, outcomes []outcome, plain int) (settled, error) {
	args := append(c.args(1+plain+9*(len(outcomes)-plain)), plain)
	for i := range outcomes {
		o := &outcomes[i]
		if i < plain {
			args = append(args, &o.d.tag)
			continue
		}
		args = append(args, o.kind.String(), &o.d.tag, &o.d.id, &o.d.key, o.delay.Microseconds(),
			o.d.number+1, strconv.Itoa(o.failures)+" "+strconv.Itoa(o.losses), o.text, o.failures > o.d.failures)
	}
	r, err := s.run(ctx, settleScript, args)
	if err != nil {
		return settled{}, err
	}
	r.instant()
	out := settled{trimmed: r.number()}
	for _, field := range strings.Fields(r.text()) {
		i, err := strconv.Atoi(field)
		if err != nil || i < 1 || i > len(outcomes) {
			r.fail("void %q", field)
			break
		}
		out.void = append(out.void, i-1)
	}
	return out, r.err("settle")
}

// What extend says of a delivery.
const (
	leaseRenewed = iota
	leaseLost
	leaseGone
)

// extend renews leases and says of each delivery what became of it.
func (s *store) extend(ctx context.Context, lease time.Duration, ds []*delivery) ([]int, error) {
	args := append(make([]any, 0, 1+2*len(ds)), lease.Microseconds())
	for _, d := range ds {
		args = append(args, &d.tag, &d.id)
	}
	r, err := s.run(ctx, extendScript, args)
	if err != nil {
		return nil, err
	}
	answers := make([]int, len(ds))
	for i := range answers {
		if answers[i] = r.number(); answers[i] < leaseRenewed || answers[i] > leaseGone {
			r.fail("answer %d", answers[i])
		}
	}
	return answers, r.err("extend")
}

// intercept takes a message out, one that is being handled only if running says so. It returns where the
// message was, and its id, "" if it is gone.
func (s *store) intercept(ctx context.Context, c *caller, by, what string, running bool) (State, string, error) {
	r, err := s.run(ctx, interceptScript, append(c.args(3), by, what, running))
	if err != nil {
		return StateGone, "", err
	}
	state, id := stateOf(r, r.text()), r.text()
	return state, id, r.err("intercept")
}

// popWake blocks until the wake marker can be taken, on a client of its own, and
// returns the instant that it stands for.
func (s *store) popWake(ctx context.Context, own *redis.Client, block time.Duration) (int64, error) {
	cmd := redis.NewZWithKeyCmd(ctx, "bzpopmin", &s.keys.wake, int64(block/time.Second))
	if err := own.Process(ctx, cmd); err != nil {
		return 0, err
	}
	return int64(cmd.Val().Score), nil // whole us, which a double holds
}
