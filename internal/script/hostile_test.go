package script

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// Nothing that is read from Redis may raise in a script, stop a queue or make a consumer spin, whoever wrote it.

var rubbish = []string{"", " ", "x", "-5", "1.5", "0x10", "nan", "inf", "-inf", "1e300", "99999999999999999999999",
	"18446744073709551616", "9 9", "9 9 9 9 9 9 9 9 ", "1 99999999999999999999999 ", "-1 -1 -1", strings.Repeat("9", 400),
	"\xff\x00\n"}

// someRubbish is all rubbish, and in a short test every fourth value, from the nth on.
func someRubbish(n int, more ...string) (some []string) {
	all := slices.Concat(rubbish, more)
	step := testkit.Size(1, 4)
	for i := n % step; i < len(all); i += step {
		some = append(some, all[i])
	}
	return some
}

// everyCall makes each call that reads state or the structures once, and says which failed.
func everyCall(r *rig, c *Caller, i int) (errs []error) {
	ctx := queuetest.CtxB
	name := func(s string) string { return fmt.Sprintf("%s%d", s, i) }
	try := func(what string, err error) {
		if err != nil && !strings.Contains(err.Error(), "DQSTALE") && !errors.Is(err, ErrBadReply) {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	deliver := func(a FetchRequest) func() error {
		a.Settings = &r.with
		return func() error { return queuetest.Failure(r.Store.Fetch(ctx, c, a)) }
	}
	send := func() error { return r.sends(c, msg(name("a"), 0), msg(name("b"), time.Second, keyed(name("k")))) }
	put := func() error {
		return r.sends(c, numbered(msg(name("n"), time.Second), "s", int64(i)), numbered(msg(name("o"), 0), name("t"), 1))
	}
	byAlarm := deliver(FetchRequest{Want: 10, ByAlarm: true})
	for _, call := range []struct {
		what string
		do   []func() error // attempts
	}{
		{"send", []func() error{send, send}}, {"put", []func() error{put, put}},
		{"fetch", []func() error{deliver(FetchRequest{Want: 10}), deliver(FetchRequest{Want: 10, Bytes: 1}),
			deliver(FetchRequest{Lose: true}), deliver(FetchRequest{Want: 10})}},
		{"fetch by the alarm", []func() error{byAlarm, byAlarm, func() error {
			return queuetest.Failure(r.Store.Extend(ctx, r.with.Lease, []string{c.lease()}, []string{queuetest.IDOf(name("a"))}))
		}}},
		{"settle", []func() error{func() error { return r.settles(c, kept(name("a"), time.Second, "v"), fails(name("b"))) }}},
		{"steer", []func() error{
			func() error { return steering(SteerRequest{What: "by", Us: 1, Targets: targetsOf(name("b"))})(r, c) }}},
		{"intercept", []func() error{
			func() error { return queuetest.Failure(r.Store.Intercept(ctx, c, "key", name("k"), true)) }}},
		{"pause", []func() error{func() error { return r.Store.Pause(ctx, c, 0, "", "") }}},
		{"lift", []func() error{func() error { return queuetest.Failure(r.Store.LiftThrottle(ctx, c)) }}},
		{"counts", []func() error{func() error { return queuetest.Failure(r.Store.Counts(ctx)) }}},
		{"look", []func() error{
			func() error { return queuetest.Failure(r.Store.Look(ctx, "id", queuetest.IDOf(name("a")), 0)) }}},
		{"await", []func() error{func() error {
			return queuetest.Failure(r.Store.Await(ctx, []string{queuetest.IDOf(name("a")), queuetest.IDOf("d")}))
		}}},
	} {
		for _, do := range call.do {
			try(call.what, do())
		}
		c.Next()
	}
	return errs
}

// TestScriptRubbishInState: no value in one field of state, or in all of them, makes a script raise or stops the queue.
func TestScriptRubbishInState(t *testing.T) {
	t.Parallel()
	fields := []string{"armed", "seen", "grace", "big", "swept", "cursor", "canceled", "pause", "paused", "lease",
		"dropped",
		"layout", "done", "changed", "aging", "loss", "call:"}
	for n, field := range fields {
		t.Run(strings.TrimSuffix(field, ":"), func(t *testing.T) {
			onReal(t, func(r *rig) { r.rubbishIn(someRubbish(n), field) })
		})
	}
	t.Run("all", func(t *testing.T) {
		onBoth(t, func(r *rig) { r.rubbishIn(rubbish, fields...) })
	})
}

// rubbishIn puts each value into these fields, makes every call, and takes the fields away.
func (r *rig) rubbishIn(values []string, fields ...string) {
	r.t.Helper()
	for i, value := range values {
		c := newCall()
		set, names := []any{"HSET", r.Keys.State}, []any{"HDEL", r.Keys.State}
		for _, field := range fields {
			if field == "call:" {
				set, names = append(set, field+c.ID, "1 "+value), append(names, field+c.ID)
			} else {
				set, names = append(set, field, value), append(names, field)
			}
		}
		r.do(set...)
		for _, err := range everyCall(r, c, i) {
			r.t.Errorf("%q in %s: %v", value, fields, err)
		}
		r.do(names...)
	}
	r.at(time.Hour)
	goesOn(r)
}

// TestScriptLongTextInState: a megabyte in a field costs a script little more than a short text. Patterns begin at a
// fixed place, or the field is not read. A pattern that begins at each place keeps the server busy for an hour.
func TestScriptLongTextInState(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	fields := []string{"armed", "seen", "grace", "big", "swept", "cursor", "canceled", "paused", "lease", "dropped",
		"counted", "done",
		"holds", "changed", "limits", "override", "limited", "throttled", "tat", "in:stored", "out:acked", "told", "kept",
		"out:over", "books", "loss"}
	for _, text := range []string{"1", "1 ", " "} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			r := rigAt(t, server.Addr())
			for _, field := range fields {
				r.do("HSET", r.Keys.State, field, strings.Repeat(text, 1_000_000/len(text)))
			}
			called := make(chan []error, 1)
			go func() { called <- everyCall(r, NewCaller(), 1) }()
			for _, err := range queuetest.Receive(t, "the calls return", called) {
				t.Error(err)
			}
		})
	}
}

// goesOn: a message that is sent is handed out and can be acked, whatever else the queue holds.
func goesOn(r *rig) {
	r.t.Helper()
	r.put(msg("works", 0))
	for range 100 {
		r.at(r.since(r.now) + time.Second)
		for _, tag := range r.fetch(NewCaller(), MaxBatch).Tags {
			if tag == queuetest.IDOf("works") {
				r.done(ack("works"))
				return
			}
		}
	}
	r.t.Error("what is sent does not come out")
}

// TestScriptRubbishScores: an impossible instant stops nothing, and does not make a consumer look at it again and
// again.
func TestScriptRubbishScores(t *testing.T) {
	t.Parallel()
	for _, score := range []string{"+inf", "-inf", "1.79e18", "9.1e15", "1.5", "0", "-5", "1e300"} {
		subtest(t, score, onReal, func(r *rig) {
			r.hand(msg("u", 0), msg("q", 0), msg("g", 0), msg("d", 0))
			r.done(kept("d", time.Minute, "v"), ends(OutcomeRetry, "q", 1, 0, "x"), ends(OutcomeGarbage, "g", 1, 0, "x"))
			r.put(msg("p", 0))
			r.do("ZADD", r.Keys.of("pending"), score, queuetest.IDOf("p"))
			r.do("ZADD", r.Keys.of("unack"), score, r.leases[queuetest.IDOf("u")].Name)
			r.do("ZADD", r.Keys.of("retry"), score, tagFor("2:q"))
			r.do("ZADD", r.Keys.of("garbage"), score, queuetest.IDOf("g"))
			r.do("ZADD", r.Keys.of("done"), score, queuetest.IDOf("d"))
			r.do("ZADD", r.Keys.Wake, score, "w")
			for _, err := range everyCall(r, NewCaller(), 0) {
				r.t.Error(err)
			}
			c := NewCaller()
			for range 20 {
				r.at(r.since(r.now) + 3*time.Second)
				f := r.fetch(c, 10)
				if f.Next > 1<<53 {
					r.t.Errorf("next %d at %d is no instant", f.Next, f.Now)
				}
			}
			if f := r.fetch(c, 10); f.Next != 0 && f.Next <= f.Now {
				r.t.Errorf("there is always more due: next %d, now %d", f.Next, f.Now)
			}
			if n, err := r.Cli.ZCard(queuetest.CtxB, r.Keys.of("unack")).Result(); err != nil || n > 3 {
				r.t.Errorf("%d are leased, %v", n, err)
			}
			goesOn(r)
		})
	}
}

// TestScriptRubbishRecords: a fail record that no script wrote counts as no record. If it begins with the number of
// another delivery, the message is not held any more, and only repair brings it back.
func TestScriptRubbishRecords(t *testing.T) {
	onReal(t, func(r *rig) {
		held, another := 0, regexp.MustCompile(`^[2-9]\d{0,8} `)
		for i, record := range append(rubbish, "2 -5 0 1700000000000000 x", "2 0 -5 1700000000000000 x",
			"2 99999999999 99999999999 1 x") {
			name := fmt.Sprint("m", i)
			r.hand(msg(name, 0))
			r.do("HSET", r.Keys.of("fail"), queuetest.IDOf(name), record)
			if !another.MatchString(record) {
				held++
			}
		}
		r.tickTo(9 * time.Second)
		r.at(11 * time.Second)
		f := r.fetch(NewCaller(), MaxBatch)
		r.equal("lost", f.Lost, held)
		r.at(13 * time.Second)
		for _, d := range takenOf(r.fetch(NewCaller(), MaxBatch).FetchReply) {
			if d.broken != nil || d.losses != 1 || d.msg.Failures != 0 {
				r.t.Errorf("%s has %d losses and %d failures: %v", names(d.tag), d.losses, d.msg.Failures, d.broken)
			}
		}
	})
}

// TestScriptRubbishCountdowns: a number that no script wrote counts nothing, and the message comes at its instant.
func TestScriptRubbishCountdowns(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.waits(3)
		for i, value := range rubbish {
			name := fmt.Sprint("m", i)
			r.hand(msg(name, 0))
			r.do("HSET", r.Keys.of("parts"), queuetest.IDOf("p")+":0", value)
			r.done(counting("k", ack(name)))
			if l := r.looks("key", "k"); l == nil || l.State != statePending {
				r.t.Errorf("after %q it is %+v", value, l)
			}
		}
		r.do("HSET", r.Keys.of("key"), "nowhere", "nobody")
		r.do("HSET", r.Keys.of("parts"), "nobody:0", 1)
		r.hand(msg("a", 0))
		r.done(counting("nowhere", ack("a")))
		r.do("HDEL", r.Keys.of("parts"), queuetest.IDOf("p")+":0", "nobody:0")
		r.do("HDEL", r.Keys.of("key"), "nowhere")
		r.at(time.Hour)
		r.equal("missing", r.fetch(NewCaller(), 10).Missing, map[int]int{0: 3})
		p := ack("p", "k")
		p.Countdown = true
		r.done(p)
	})
}

// TestScriptRubbishConsumers: rubbish in the entries of consumers stops no fetch.
func TestScriptRubbishConsumers(t *testing.T) {
	onReal(t, func(r *rig) {
		for i, value := range rubbish {
			for _, value := range []string{value, value + " " + value + " {}", "1 " + value + " {}"} {
				r.do("HSET", r.Keys.of("consumers"), fmt.Sprint(i), value)
				c := newCall()
				r.ask(c, FetchRequest{Want: 1, Presence: "{}"})
				c.Next()
				r.ask(c, FetchRequest{Want: 1, Presence: PresenceLeaving})
			}
		}
		for range testkit.Size(200, 40) {
			c := newCall()
			r.ask(c, FetchRequest{Presence: "{}"})
			c.Next()
			r.ask(c, FetchRequest{Presence: PresenceLeaving})
		}
		goesOn(r)
	})
}
