package delayqueue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The calls. Each begins a new one; those with Again repeat the last.

func (r *rig) send(c *caller, ms ...*sendMessage) sendReply {
	r.t.Helper()
	c.next()
	return r.sendAgain(c, ms...)
}

func (r *rig) sendAgain(c *caller, ms ...*sendMessage) sendReply {
	r.t.Helper()
	out, err := r.store.send(context.Background(), c, sendRequest{messages: ms})
	if err != nil {
		r.t.Fatalf("send: %v", err)
	}
	return out
}

// put sends, by a caller of its own, in batches.
func (r *rig) put(ms ...*sendMessage) {
	r.t.Helper()
	for part := range slices.Chunk(ms, maxBatch) {
		if out := r.send(newCaller(), part...); len(out.refused) > 0 || out.now != r.now {
			r.t.Fatalf("send: %+v", out)
		}
	}
}

// refused names those that hold the keys, by index.
func refused(out sendReply) string {
	var words []string
	for _, i := range slices.Sorted(maps.Keys(out.refused)) {
		words = append(words, fmt.Sprintf("%d=%s", i, names(out.refused[i])))
	}
	return strings.Join(words, " ")
}

func (r *rig) fetch(c *caller, want int) fetchReply {
	r.t.Helper()
	c.next()
	return r.fetchAgain(c, want)
}

func (r *rig) fetchAgain(c *caller, want int) fetchReply {
	r.t.Helper()
	return r.ask(c, fetchRequest{want: want})
}

func (r *rig) ask(c *caller, a fetchRequest) fetchReply {
	r.t.Helper()
	a.settings, a.limits = &r.with, r.limits
	f, err := r.store.fetch(context.Background(), c, a)
	if err != nil {
		r.t.Fatalf("fetch: %v", err)
	}
	if f.now != serverTime(r.now) {
		r.t.Errorf("fetch at %v says it is %v", r.since(r.now), r.since(int64(f.now)))
	}
	for i, tag := range f.tags {
		if _, n := splitTag(tag); n > 1 && i >= len(f.fails) {
			r.t.Errorf("%s has no record in %q", names(tag), f.fails)
		}
		if e, err := decodeEnvelope(f.envelopes[i]); err != nil || e.due > int64(f.now) {
			r.t.Errorf("handed out %s at %v: %+v, %v", names(tag), r.since(int64(f.now)), e, err)
		}
	}
	return f
}

// records are the fail records that came with deliveries beyond the first.
func (f *fetchReply) records() []string {
	return slices.DeleteFunc(slices.Clone(f.fails), func(record string) bool { return record == "" })
}

// take fetches for a new consumer and wants these deliveries, in order.
func (r *rig) take(want string) *caller {
	r.t.Helper()
	c := newCaller()
	r.equal("handed out", handed(r.fetch(c, len(strings.Fields(want)))), want)
	return c
}

// hand sends messages that are due and hands them out.
func (r *rig) hand(ms ...*sendMessage) *caller {
	r.t.Helper()
	r.put(ms...)
	c := newCaller()
	if f := r.fetch(c, len(ms)); len(f.tags) != len(ms) {
		r.t.Fatalf("fetched %d of %d", len(f.tags), len(ms))
	}
	return c
}

func handed(f fetchReply) string { return names(strings.Join(f.tags, " ")) }

// ack is the settlement of a delivery that has this name, and of which the message has this key.
func ack(name string, key ...string) settlement {
	s := settlement{tag: tagFor(name), key: strings.Join(key, "")}
	s.id, s.number = splitTag(s.tag)
	return s
}

func ends(kind outcomeKind, name string, failures, losses int, text string, key ...string) settlement {
	s := ack(name, key...)
	s.kind, s.delay, s.failed, s.failures, s.losses, s.text = kind, time.Second, failures > 0, failures, losses, text
	return s
}

func (r *rig) settle(c *caller, all ...settlement) []int {
	r.t.Helper()
	c.next()
	return r.settleAgain(c, all...)
}

func (r *rig) settleAgain(c *caller, all ...settlement) []int {
	r.t.Helper()
	got, err := r.store.settle(context.Background(), c, all)
	if err != nil {
		r.t.Fatalf("settle: %v", err)
	}
	return got.void
}

// done settles by a caller of its own and wants nothing void.
func (r *rig) done(all ...settlement) {
	r.t.Helper()
	if void := r.settle(newCaller(), all...); void != nil {
		r.t.Errorf("void %v", void)
	}
}

func (r *rig) extend(names ...string) []leaseState {
	r.t.Helper()
	tags := make([]string, len(names))
	for i, name := range names {
		tags[i] = tagFor(name)
	}
	answers, err := r.store.extend(context.Background(), r.with.lease, tags)
	if err != nil {
		r.t.Fatalf("extend: %v", err)
	}
	return answers
}

func (r *rig) intercept(c *caller, by, what string) State {
	r.t.Helper()
	c.next()
	return r.interceptAgain(c, by, what)
}

func (r *rig) interceptAgain(c *caller, by, what string) State {
	r.t.Helper()
	return r.takeOut(c, by, what, false)
}

// cancel is by a caller of its own.
func (r *rig) cancel(by, what string) State {
	r.t.Helper()
	c := newCaller()
	c.next()
	return r.takeOut(c, by, what, true)
}

func (r *rig) takeOut(c *caller, by, what string, running bool) State {
	r.t.Helper()
	got, err := r.store.intercept(context.Background(), c, by, what, running)
	if err != nil {
		r.t.Fatalf("intercept: %v", err)
	}
	if (got.ID == "") != (got.State == StateGone) || by == "id" && got.ID != "" && got.ID != what {
		r.t.Errorf("%s %s is %s, with the id %q", by, what, got.State, got.ID)
	}
	return got.State
}

// tooLate wants the answer to a call that came after a later one.
func (r *rig) tooLate(err error) {
	r.t.Helper()
	if err == nil || !strings.Contains(err.Error(), "DQSTALE") {
		r.t.Errorf("an older call: %v, want DQSTALE", err)
	}
}

// older makes the caller repeat the call before its last one.
func older(c *caller) *caller { return &caller{id: c.id, n: c.n - 1} }
