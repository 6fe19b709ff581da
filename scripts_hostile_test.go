package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// Nothing that is read from Redis may raise in a script, stop a queue or make a consumer spin, whoever wrote it.

var rubbish = []string{"", " ", "x", "-5", "1.5", "0x10", "nan", "inf", "-inf", "1e300", "99999999999999999999999",
	"18446744073709551616", "9 9", "9 9 9 9 9 9 9 9 ", "1 99999999999999999999999 ", "-1 -1 -1", strings.Repeat("9", 400), "\xff\x00\n"}

// everyCall makes each call that reads state or the structures once, and says which failed.
func everyCall(r *rig, c *caller, i int) (errs []error) {
	ctx := context.Background()
	name := func(s string) string { return fmt.Sprintf("%s%d", s, i) }
	try := func(what string, err error) {
		if err != nil && !strings.Contains(err.Error(), "DQSTALE") && !errors.Is(err, ErrBadReply) {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	for range 2 { // the second time, as a repeat
		_, err := r.store.send(ctx, c, sendRequest{messages: []*sendMessage{msg(name("a"), 0), msg(name("b"), time.Second, keyed(name("k")))}})
		try("send", err)
	}
	c.next()
	for range 2 {
		_, err := r.store.send(ctx, c, sendRequest{messages: []*sendMessage{numbered(msg(name("n"), time.Second), "s", int64(i)),
			numbered(msg(name("o"), 0), name("t"), 1)}})
		try("put", err)
	}
	c.next()
	for _, a := range []fetchRequest{{want: 10}, {want: 10, bytes: 1}, {probe: true}, {want: 10}} {
		a.settings = &r.with
		_, err := r.store.fetch(ctx, c, a)
		try("fetch", err)
	}
	c.next()
	for range 2 {
		_, err := r.store.fetch(ctx, c, fetchRequest{want: 10, byAlarm: true, settings: &r.with})
		try("fetch by the alarm", err)
	}
	_, err := r.store.extend(ctx, r.with.lease, []string{idOf(name("a"))})
	try("extend", err)
	for _, call := range []struct {
		what string
		do   func() error
	}{
		{"settle", func() error {
			_, err := r.store.settle(ctx, c, []settlement{kept(name("a"), time.Second, "v"), ends(outcomeRetry, name("b"), 1, 0, "x")})
			return err
		}},
		{"steer", func() error {
			_, err := r.store.steer(ctx, c, steerRequest{what: "by", us: 1, targets: []spot{{tag: idOf(name("b"))}}})
			return err
		}},
		{"intercept", func() error {
			_, err := r.store.intercept(ctx, c, "key", name("k"), true)
			return err
		}},
		{"pause", func() error { return r.store.pause(ctx, c, 0, onBehalf{}) }},
		{"lift", func() error { return failure(r.store.liftThrottle(ctx, c)) }},
	} {
		c.next()
		try(call.what, call.do())
	}
	_, err = r.store.counts(ctx)
	try("counts", err)
	_, err = r.store.look(ctx, "id", idOf(name("a")))
	try("look", err)
	_, err = r.store.await(ctx, []string{idOf(name("a")), idOf("d")})
	try("await", err)
	return errs
}

func TestScriptRubbishInState(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"armed", "seen", "grace", "big", "swept", "cursor", "lent", "pause", "paused", "settings", "dropped",
		"layout", "done", "changed", "aging", "call:"} {
		t.Run(strings.TrimSuffix(field, ":"), func(t *testing.T) {
			onBoth(t, func(r *rig) {
				for i, value := range rubbish {
					c := newCaller()
					name := field
					if field == "call:" {
						c.next()
						name += c.id
						value = "1 " + value
					}
					r.do("HSET", r.keys.state, name, value)
					for _, err := range everyCall(r, c, i) {
						r.t.Errorf("%s %q: %v", name, value, err)
					}
					r.do("HDEL", r.keys.state, name)
				}
				r.at(time.Hour)
				goesOn(r)
			})
		})
	}
}

// TestScriptLongTextInState: a field that holds 40 KB of what a pattern may begin with costs no script more than a short one: all
// patterns begin at a fixed place, or the field is not read.
func TestScriptLongTextInState(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cli := patientClient(server.Addr())
	t.Cleanup(func() { _ = cli.Close() })
	i := 0
	cost := func(fields []string, text string, size int) time.Duration {
		i++
		r := &rig{store: newStore(cli, "dq", fmt.Sprint("q", i)), t: t, with: fetchSettings{lease: rigLease, maxLosses: 3}}
		r.store.attemptTimeout = patience
		before := server.Busy()
		for _, field := range fields {
			if err := cli.HSet(ctxB, r.store.keys.state, field, strings.Repeat(text, size/len(text))).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, err := range everyCall(r, newCaller(), 1) {
			t.Error(err)
		}
		return server.Busy() - before
	}
	fields := []string{"armed", "seen", "grace", "big", "swept", "cursor", "lent", "paused", "settings", "dropped", "counted", "done",
		"held", "changed", "limits", "override", "limited", "throttled", "tat", "sent", "acked"}
	for _, text := range []string{"1", "1 ", " "} {
		short, long := cost(fields, text, 200), cost(fields, text, 40_000)
		if long > 10*short+100*time.Millisecond {
			t.Errorf("%q: 40 KB cost the server %v, 200 bytes %v", text, long, short)
		}
	}
}

// goesOn: what is sent is handed out and can be acked, however much else there is.
func goesOn(r *rig) {
	r.t.Helper()
	r.put(msg("works", 0))
	for range 100 {
		r.at(r.since(r.now) + time.Second)
		for _, tag := range r.fetch(newCaller(), maxBatch).tags {
			if tag == idOf("works") {
				r.done(ack("works"))
				return
			}
		}
	}
	r.t.Error("what is sent does not come out")
}

// TestScriptRubbishScores: an instant that nobody can mean stops nothing, and is not looked at again and again.
func TestScriptRubbishScores(t *testing.T) {
	t.Parallel()
	for _, score := range []string{"+inf", "-inf", "1.79e18", "9.1e15", "1.5", "0", "-5", "1e300"} {
		t.Run(score, func(t *testing.T) {
			onBoth(t, func(r *rig) {
				r.hand(msg("u", 0), msg("q", 0), msg("g", 0), msg("d", 0))
				r.done(kept("d", time.Minute, "v"), ends(outcomeRetry, "q", 1, 0, "x"), ends(outcomeGarbage, "g", 1, 0, "x"))
				r.put(msg("p", 0))
				r.do("ZADD", r.keys.pending, score, idOf("p"))
				r.do("ZADD", r.keys.unack, score, idOf("u"))
				r.do("ZADD", r.keys.retry, score, tagFor("2:q"))
				r.do("ZADD", r.keys.garbage, score, idOf("g"))
				r.do("ZADD", r.keys.done, score, idOf("d"))
				r.do("ZADD", r.keys.wake, score, "w")
				for _, err := range everyCall(r, newCaller(), 0) {
					r.t.Error(err)
				}
				c := newCaller()
				for range 20 {
					r.at(r.since(r.now) + 3*time.Second)
					f := r.fetch(c, 10)
					here := time.Now()
					s := pollState{clock: serverTime(f.now), clockAt: here}
					if wait := s.until(f.next, here); f.next != 0 && wait > time.Minute && f.next < f.now+60_000_000 || wait < 0 && f.next > f.now {
						r.t.Errorf("next %d at %d is %v from now", f.next, f.now, wait)
					}
				}
				if f := r.fetch(c, 10); f.next != 0 && f.next <= f.now {
					r.t.Errorf("there is always more due: next %d, now %d", f.next, f.now)
				}
				if n, err := r.cli.ZCard(context.Background(), r.keys.unack).Result(); err != nil || n > 3 {
					r.t.Errorf("%d are leased, %v", n, err)
				}
				goesOn(r)
			})
		})
	}
}

// TestScriptRubbishRecords: a fail record that no script wrote counts as none.
func TestScriptRubbishRecords(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for i, record := range append(rubbish, "2 -5 0 1700000000000000 x", "2 0 -5 1700000000000000 x", "2 99999999999 99999999999 1 x") {
			name := fmt.Sprint("m", i)
			r.hand(msg(name, 0))
			r.do("HSET", r.keys.fail, idOf(name), record)
		}
		r.tickTo(9 * time.Second)
		r.at(11 * time.Second)
		f := r.fetch(newCaller(), maxBatch)
		r.equal("lost", f.lost, len(rubbish)+3)
		r.at(13 * time.Second)
		f = r.fetch(newCaller(), maxBatch)
		for _, d := range decode(nil, &f, 0, time.Time{}, time.Time{}) {
			if d.broken != nil || d.losses != 1 || d.msg.Failures != 0 {
				r.t.Errorf("%s has %d losses and %d failures: %v", names(d.tag), d.losses, d.msg.Failures, d.broken)
			}
		}
	})
}

// TestScriptRubbishConsumers: what consumers say of themselves is for Monitors alone.
func TestScriptRubbishConsumers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for i, value := range rubbish {
			for _, value := range []string{value, value + " " + value + " {}", "1 " + value + " {}"} {
				r.do("HSET", r.keys.consumers, fmt.Sprint(i), value)
				c := newCaller()
				c.next()
				r.ask(c, fetchRequest{want: 1, presence: "{}"})
				c.next()
				r.ask(c, fetchRequest{want: 1, presence: presenceLeaving})
			}
		}
		for range 200 {
			c := newCaller()
			c.next()
			r.ask(c, fetchRequest{presence: "{}"})
			c.next()
			r.ask(c, fetchRequest{presence: presenceLeaving})
		}
		goesOn(r)
	})
}

// TestForeignCallNumber: who writes a call number into state stops no sender, and who steers at most once.
func TestForeignCallNumber(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	info := f.send(q, "before", inAnHour)
	state := q.store.keys.state
	spoil := func() {
		t.Helper()
		for field := range f.cli.HGetAll(ctxB, state).Val() {
			if strings.HasPrefix(field, "call:") {
				f.must(f.cli.HSet(ctxB, state, field, fmt.Sprintf("99999999 %d ", time.Now().UnixMicro())).Err())
			}
		}
	}
	spoil()
	f.send(q, "alone", inAnHour)
	spoil()
	f.send(q, "with a key", inAnHour, WithKey("k"))
	spoil()
	if _, err := q.SendBatch(ctxB, []Outgoing{{Payload: "one"}, {Payload: "other", Options: []MsgOption{WithKey("l")}}}); err != nil {
		t.Error(err)
	}
	spoil()
	_, _ = q.Intercept(ctxB, info.ID)
	if got, err := q.Intercept(ctxB, info.ID); err != nil || !got.Intercepted && got.State != StateGone {
		t.Errorf("intercept: %+v, %v", got, err)
	}
}

// TestForeignHolderOfAKey: whatever holds a key, the others that are sent with it are stored, and say so.
func TestForeignHolderOfAKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	f.buried("dead")
	k := q.store.keys
	for _, holder := range []string{"a b", " ", "\n", "\u00a0", "1=2 3=4", "\xff"} {
		f.must(f.cli.HSet(ctxB, k.key, "taken", holder, "key of dead", holder).Err())
		f.must(f.cli.HSet(ctxB, k.msg, holder, "x").Err())
		got, err := q.SendBatch(ctxB, []Outgoing{{Payload: "free", Options: []MsgOption{inAnHour}},
			{Payload: "not", Options: []MsgOption{WithKey("taken")}}})
		if !errors.Is(err, ErrDuplicateKey) || got[0].Err != nil || !errors.Is(got[1].Err, ErrDuplicateKey) {
			t.Errorf("%q: %v, %v", holder, got[0].Err, got[1].Err)
		}
		bulk, err := m.BulkRequeue(ctxB, Bulk{})
		f.bulked("requeue", bulk, err, 1, 0, map[Reason]int64{PassedKey: 1})
		f.must(f.cli.HDel(ctxB, k.key, "taken", "key of dead").Err())
		f.must(f.cli.HDel(ctxB, k.msg, holder).Err())
	}
}

// TestScriptForeignLeases: however many others have the lease end of a lost reply, the repeat is answered.
func TestScriptForeignLeases(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.put(msg("a", 0), msg("b", 0))
		c := newCaller()
		if got := r.fetch(c, 2); len(got.tags) != 2 {
			r.t.Fatalf("%+v", got)
		}
		lent := r.cli.HGet(ctxB, r.keys.state, "lent").Val()
		args, members := []any{"ZADD", r.keys.unack}, []any{"ZREM", r.keys.unack}
		for i := range 9000 {
			args = append(args, lent, fmt.Sprint("foreign", i))
			members = append(members, fmt.Sprint("foreign", i))
		}
		r.do(args...)
		for _, a := range []fetchRequest{{want: 2}, {want: 2, bytes: 1}, {probe: true}} {
			a.settings = &r.with
			if _, err := r.store.fetch(ctxB, c, a); err != nil {
				r.t.Errorf("%+v: %v", a, err)
			}
		}
		r.do(members...)
	})
}
