package script

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// A contractCase is a call of a script, in a queue that build makes.
type contractCase struct {
	script *script
	passes string // structures in whose place another key stops nothing; "any": some are not touched
	build  func(r *rig) (call func() error)
}

// These calls make a new call of a caller once, and repeat it from then on.

func (r *rig) sends(ms ...*SendMessage) func() error {
	c := newCall()
	return func() error {
		return queuetest.Failure(r.Store.Send(queuetest.CtxB, c, SendRequest{Messages: ms}))
	}
}

func (r *rig) intercepts(by, what string) func() error {
	c := newCall()
	return func() error { return queuetest.Failure(r.Store.Intercept(queuetest.CtxB, c, by, what, false)) }
}

func (r *rig) fetches(c *Caller) func() error {
	return func() error {
		return queuetest.Failure(r.Store.Fetch(queuetest.CtxB, c, FetchRequest{Want: 10, Seed: 7, Settings: &r.with}))
	}
}

func (r *rig) settles(all ...Settlement) func() error {
	c := newCall()
	return func() error { return queuetest.Failure(r.Store.Settle(queuetest.CtxB, c, r.leased(all))) }
}

// contractCalls are calls of all scripts that read or write more than one key.
var contractCalls = map[string]contractCase{
	"send": {script: SendScript, build: func(r *rig) func() error {
		r.put(msg("old", time.Hour, keyed("old")))
		heldKey(r)
		return r.sends(msg("c", 0, keyed("l")), msg("d", 0, keyed("k")), msg("b", 0))
	}},
	"single": {script: SingleScript, build: func(r *rig) func() error {
		r.put(msg("old", time.Hour))
		return r.sends(msg("a", 0))
	}},
	"put": {script: plainPut, build: func(r *rig) func() error {
		r.put(msg("old", time.Hour, keyed("old")))
		r.answers(NewCaller(), numbered(msg("s", time.Hour), "s", 1), part("g", time.Hour, 0), part("h", time.Hour, 0))
		r.put(inLane("l", 1, "l1", time.Hour), inLane("l", 1, "l2", time.Hour))
		return r.sends(numbered(msg("a", 0, keyed("k")), "s", 2),
			numbered(msg("b", 0), "t", 1), inLane("l", 1, "l3", 0), inLane("l", 1, "l4", 0))
	}},
	"put, onto others": {script: PutScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		r.answers(NewCaller(), part("p", time.Hour, 0), on(ConflictReplace, true, msg("q", time.Hour, keyed("q"))))
		return r.sends(part("r", time.Hour, 2),
			on(ConflictReplace, true, msg("s", 0, keyed("q"))), on(ConflictReschedule, true, msg("t", 0, keyed("ready"))),
			on(ConflictKeep, true, msg("u", 0, keyed("held"))), on(ConflictReplace, true, msg("v", 0, keyed("k"))))
	}},
	"intercept by id": {script: InterceptScript, build: func(r *rig) func() error {
		r.answers(NewCaller(), part("a", time.Hour, 0), part("b", time.Hour, 0))
		return r.intercepts("id", queuetest.IDOf("a"))
	}},
	"intercept by key": {script: InterceptScript, build: func(r *rig) func() error {
		r.answers(NewCaller(), part("a", time.Hour, 0), part("b", time.Hour, 0))
		return r.intercepts("key", "k")
	}},
	"fetch": {script: FetchScript, build: func(r *rig) func() error {
		everywhere(r)
		return r.fetches(newCall())
	}},
	"fetch, no lease ran out": {script: FetchScript, passes: "any", build: func(r *rig) func() error {
		r.hand(msg("a", 0), msg("b", 0))
		r.done(ends(OutcomeRetry, "a", 1, 0, "x"), ends(OutcomeReady, "b", 0, 0, ""))
		r.put(msg("c", 0))
		r.at(2 * time.Second)
		return r.fetches(newCall())
	}},
	"fetch, an envelope is missing": {script: FetchScript, passes: "any", build: func(r *rig) func() error {
		r.put(msg("a", 0), msg("b", 0))
		r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
		return r.fetches(newCall())
	}},
	"fetch, repeated": {script: FetchScript, passes: "any", build: func(r *rig) func() error {
		r.hand(msg("a", 0), msg("b", 0))
		r.done(ends(OutcomeReady, "b", 0, 0, ""))
		r.put(msg("c", 0))
		return r.fetches(r.take("2:b c"))
	}},
	"settle": {script: plainSettle, build: func(r *rig) func() error {
		everywhere(r)
		r.hand(msg("p", 0), msg("q", 0), msg("r", 0), msg("s", 0), msg("t", 0, keyed("t")), msg("u", 0))
		return r.settles(then(lane("l", ack("gone")), msg("after", time.Hour, keyed("after"))), ack("p"), ends(OutcomeRetry, "q", 1, 0, "x"),
			ends(OutcomeReady, "r", 0, 0, ""),
			ends(OutcomeGarbage, "s", 1, 0, "x"), holding("t", time.Hour, "t"), kept("u", time.Hour, "v"))
	}},
	"settle, acks that count, and change other messages": {script: SettleScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		r.answers(NewCaller(), waitsFor(2, msg("w", time.Hour, keyed("w"))), part("g", time.Hour, 0), waitsFor(1, msg("x", time.Hour, keyed("x"))))
		r.hand(msg("p", 0), msg("q", 0), msg("r", 0))
		return r.settles(counting("w", then(ack("p"), part("h", time.Hour, 2), waitsFor(3, msg("n", time.Hour, keyed("n"))))),
			counting("x", then(ack("q"), on(ConflictReschedule, true, msg("s", 0, keyed("ready"))))),
			counting("w", then(ack("r"), on(ConflictReplace, true, msg("v", time.Hour, keyed("k"))))))
	}},
	"settle, an ack that a message follows": {script: SettleScript, passes: "any", build: func(r *rig) func() error {
		r.hand(msg("p", 0))
		return r.settles(then(ack("p"), msg("next", time.Hour)))
	}},
	"settle, what follows has a key that stays taken": {script: SettleScript, passes: "any", build: func(r *rig) func() error {
		heldKey(r)
		r.hand(msg("p", 0))
		return r.settles(then(ack("p"), msg("next", time.Hour, keyed("k"))))
	}},
	"settle, plain acks of which one is stale": {script: SettleScript, passes: "any", build: func(r *rig) func() error {
		r.hand(msg("p", 0), msg("q", 0), msg("r", 0))
		r.equal("cancel", r.cancel("id", queuetest.IDOf("q")), stateUnack)
		return r.settles(ack("p"), ack("q"), ack("r"))
	}},
	"settle, a handler that runs on": {script: SettleScript, passes: "any", build: func(r *rig) func() error {
		r.limits = RateLimits{Concurrency: 1}
		r.hand(msg("a", 0))
		o := ends(OutcomeRetry, "a", 1, 0, "slow")
		o.Overrun = time.Minute
		return r.settles(o)
	}},
	"put into lanes": {script: PutScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		r.put(inLane("l", 1, "p", time.Hour, keyed("p")), inLane("l", 1, "q", 2*time.Hour, keyed("q")))
		return r.sends(inLane("l", 1, "r", 0), changes(ConflictReplace, inLane("m", 1, "s", 0, keyed("p"))),
			changes(ConflictReschedule, inLane("l", 1, "t", 0, keyed("q"))), changes(ConflictReplace, inLane("l", 1, "u", 0, keyed("ready"))))
	}},
	"settle in lanes": {script: SettleScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		for _, l := range []string{"a", "b", "c"} {
			r.put(inLane(l, 1, l+"1", 0), inLane(l, 1, l+"2", 0))
		}
		r.fetch(NewCaller(), 10)
		again := lane("c", ends(OutcomeRetry, "c1", 0, 0, ""))
		again.Leaves = true
		return r.settles(then(lane("a", ack("a1")), inLane("a", 1, "next", 0)), lane("b", ends(OutcomeGarbage, "b1", 1, 0, "x")), again)
	}},
	"intercept in a lane": {script: InterceptScript, passes: "any", build: func(r *rig) func() error {
		r.put(inLane("l", 1, "a", time.Hour), inLane("l", 1, "b", time.Hour))
		return r.intercepts("id", queuetest.IDOf("a"))
	}},
	"steer in lanes": {script: SteerScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		r.put(inLane("l", 1, "a", time.Hour), inLane("l", 1, "b", time.Hour))
		return r.steering(SteerRequest{What: "by", Us: 1e6, Targets: []Spot{{Tag: queuetest.IDOf("a")}, {Tag: queuetest.IDOf("b")}}})
	}},
	"fetch, leases of lanes ran out": {script: FetchScript, passes: "any", build: func(r *rig) func() error {
		r.put(inLane("l", 1, "a", 0), inLane("l", 1, "b", time.Minute), inLane("m", 1, "c", 0, keyed("k")), inLane("m", 1, "d", time.Minute))
		r.fetch(NewCaller(), 10)
		r.send(NewCaller(), changes(ConflictReplace, msg("e", time.Hour, keyed("k"))))
		r.tickTo(9 * time.Second)
		r.at(11 * time.Second)
		r.with.MaxLosses = 1
		return r.fetches(newCall())
	}},
	"fetch, repeated, what is superseded has a lane": {script: FetchScript, passes: "any", build: func(r *rig) func() error {
		c := NewCaller()
		r.put(inLane("l", 1, "a", 0, sized(300)), inLane("m", 1, "c", 0, sized(300), keyed("k")), inLane("m", 1, "d", time.Minute))
		r.fetch(c, 10)
		r.send(NewCaller(), changes(ConflictReplace, msg("e", time.Hour, keyed("k"))))
		return func() error {
			return queuetest.Failure(r.Store.Fetch(queuetest.CtxB, c, FetchRequest{Want: 10, Bytes: 400, Seed: 7, Settings: &r.with}))
		}
	}},
	"keep": {script: KeepScript, build: func(r *rig) func() error {
		r.hand(msg("a", 0), msg("b", 0))
		return func() error {
			return queuetest.Failure(r.Store.Keep(queuetest.CtxB, r.leases[tagFor("a")].Name, []string{tagFor("a")}))
		}
	}},
	"overrun": {script: OverrunScript, build: func(r *rig) func() error {
		r.limits = RateLimits{Concurrency: 1}
		r.hand(msg("a", 0))
		return func() error { return r.Store.Overrun(queuetest.CtxB, time.Hour, []string{queuetest.IDOf("a")}) }
	}},
	"extend": {script: ExtendScript, build: func(r *rig) func() error {
		r.hand(msg("a", 0))
		return func() error {
			return queuetest.Failure(r.Store.Extend(queuetest.CtxB, time.Hour, []string{r.leases[queuetest.IDOf("a")].Name}, []string{queuetest.IDOf("a"), queuetest.IDOf("nobody")}))
		}
	}},
	"counts": {script: CountsScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		return func() error { return queuetest.Failure(r.Store.Counts(queuetest.CtxB)) }
	}},
	"balance": {script: BalanceScript, build: func(r *rig) func() error {
		everywhere(r)
		return func() error { return queuetest.Failure(r.Store.Balance(queuetest.CtxB)) }
	}},
	"look": {script: LookScript, passes: "any", build: func(r *rig) func() error {
		r.hand(msg("a", 0, keyed("k")))
		return func() error { return queuetest.Failure(r.Store.Look(queuetest.CtxB, "key", "k", 0)) }
	}},
	"list": {script: ListScripts[statePending], build: func(r *rig) func() error {
		r.put(msg("a", time.Hour))
		return func() error {
			return queuetest.Failure(r.Store.List(queuetest.CtxB, ListRequest{In: statePending, From: math.MinInt64, To: math.MaxInt64, Part: "later", Limit: 10}))
		}
	}},
	"held": {script: ListScripts[stateUnack], build: func(r *rig) func() error {
		r.hand(msg("a", 0), msg("b", 0))
		return func() error {
			return queuetest.Failure(r.Store.List(queuetest.CtxB, ListRequest{In: stateUnack, From: math.MinInt64, To: math.MaxInt64, Limit: 1}))
		}
	}},
	"forecast": {script: ForecastScript, build: func(r *rig) func() error {
		r.put(msg("a", time.Hour))
		return func() error { return queuetest.Failure(r.Store.Forecast(queuetest.CtxB, 0, time.Minute, 3)) }
	}},
	"steer": {script: SteerScript, build: func(r *rig) func() error {
		everywhere(r)
		return r.steering(SteerRequest{What: "by", Us: 1e6,
			Targets: []Spot{{Tag: queuetest.IDOf("due")}, {Tag: queuetest.IDOf("retry")}, {Tag: queuetest.IDOf("ready")}}})
	}},
	"steer, requeue": {script: SteerScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		return r.steering(SteerRequest{What: SteerRequeue, Us: r.now, Targets: []Spot{{Tag: queuetest.IDOf("dead")}}})
	}},
	"steer, delete": {script: SteerScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		return r.steering(SteerRequest{What: SteerDelete, Targets: []Spot{{Tag: queuetest.IDOf("dead")}, {Tag: queuetest.IDOf("done")}, {Tag: queuetest.IDOf("group")}}})
	}},
	"steer, release": {script: SteerScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		return r.steering(SteerRequest{What: SteerRelease, Only: "key", Targets: []Spot{{Tag: "held"}}})
	}},
	"steer, garbage": {script: SteerScript, passes: "any", build: func(r *rig) func() error {
		r.put(inLane("l", 1, "first", 0, keyed("k")), inLane("l", 1, "next", 0))
		return r.steering(SteerRequest{What: SteerGarbage, Targets: []Spot{{Tag: queuetest.IDOf("first"), Score: "x"}}})
	}},
	"lanes": {script: LanesScript, passes: "any", build: func(r *rig) func() error {
		r.put(inLane("l", 1, "first", 0), inLane("l", 1, "next", 0))
		return func() error { return queuetest.Failure(r.Store.Lanes(queuetest.CtxB, LanesRequest{Limit: 10})) }
	}},
	"set, limits": {script: SetScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		c := newCall()
		return func() error {
			return queuetest.Failure(r.Store.SetLimits(queuetest.CtxB, c, RateLimits{Concurrency: 5}))
		}
	}},
	"await": {script: AwaitScript, passes: "any", build: func(r *rig) func() error {
		everywhere(r)
		return func() error {
			return queuetest.Failure(r.Store.Await(queuetest.CtxB, []string{queuetest.IDOf("done"), queuetest.IDOf("dead"), queuetest.IDOf("due")}))
		}
	}},
	"sequences": {script: SequencesScript, build: func(r *rig) func() error {
		r.answers(NewCaller(), numbered(msg("a", time.Hour), "s", 1))
		return func() error { return queuetest.Failure(r.Store.Sequences(queuetest.CtxB, "", "0")) }
	}},
	"sequence, drop": {script: sequenceScript, build: func(r *rig) func() error {
		r.answers(NewCaller(), numbered(msg("a", time.Hour), "s", 1))
		c := newCall()
		return func() error { return queuetest.Failure(r.Store.DropSequence(queuetest.CtxB, c, "s")) }
	}},
	"sequence, pass": {script: sequenceScript, build: func(r *rig) func() error {
		r.answers(NewCaller(), numbered(msg("a", time.Hour), "s", 1))
		c := newCall()
		return func() error { _, _, err := r.Store.PassSequence(queuetest.CtxB, c, "s", 2); return err }
	}},
	"set, until": {script: SetScript, passes: "msg", build: func(r *rig) func() error {
		everywhere(r)
		c := newCall()
		return func() error { return r.Store.Pause(queuetest.CtxB, c, message.Forever, "", "") }
	}},
	"repair": {script: repairScript, build: func(r *rig) func() error {
		everywhere(r)
		return func() error {
			_, err := r.Store.Repair(queuetest.CtxB, []Flaw{{"record", queuetest.IDOf("due")}, {"alarm", "w"}, {"place", queuetest.IDOf("dead")}})
			return err
		}
	}},
	"note": {script: NoteScript, build: func(r *rig) func() error {
		r.notes("a", JournalDone, "", "{}")
		return func() error {
			return queuetest.Failure(r.Store.Note(queuetest.CtxB, &JournalNote{Word: JournalDone, Token: tokenOf("b"), Text: "{}", Keep: time.Hour}, 0))
		}
	}},
	"note, again": {script: NoteScript, build: func(r *rig) func() error {
		made, _ := r.notes("a", JournalRuns, "", "{}")
		return func() error {
			return queuetest.Failure(r.Store.Note(queuetest.CtxB, &JournalNote{Word: JournalStop, Token: tokenOf("a"), Made: made, Keep: time.Hour}, 0))
		}
	}},
	"journal": {script: JournalScript, build: func(r *rig) func() error {
		r.notes("a", JournalDone, "", "{}")
		return func() error { return queuetest.Failure(r.Store.Journal(queuetest.CtxB, JournalRequest{Limit: 1})) }
	}},
}

func (r *rig) steering(do SteerRequest) func() error {
	c := newCall()
	return func() error { return queuetest.Failure(r.Store.Steer(queuetest.CtxB, c, do)) }
}

// everywhere makes a state in which a fetch touches every structure: an expired lease, aged garbage, a done message whose time
// is over, due messages in ready, pending and retry, all with keys, and a
// lane whose message that has the turn is lost.
func everywhere(r *rig) {
	r.do("HSET", r.Keys.key, "held", "acked:"+queuetest.IDOf("held"))
	r.do("ZADD", r.Keys.held, fmt.Sprint(r.now+10_000_000), "held")
	r.do("HSET", r.Keys.State, "held", fmt.Sprint(r.now+10_000_000))
	r.put(inLane("l", 1, "gone", 0))
	r.take("gone")
	r.put(inLane("l", 1, "turn", 0), inLane("l", 1, "next", 0))
	r.hand(msg("done", 0, keyed("done")), msg("lost", 0, keyed("lost")), msg("dead", 0, keyed("dead")), msg("ready", 0, keyed("ready")),
		msg("retry", 0, keyed("retry")))
	r.done(ends(OutcomeGarbage, "dead", 1, 0, "x", "dead"), ends(OutcomeRetry, "retry", 1, 0, "x"), ends(OutcomeReady, "ready", 0, 0, ""),
		kept("done", 10*time.Second, "v", "done"))
	r.answers(NewCaller(), part("group", 0, 0), part("grows", 0, 0))
	r.put(msg("due", 0, keyed("due")))
	r.tickTo(9 * time.Second)
	r.at(11 * time.Second)
	r.with.GarbageAge, r.with.MaxLosses = time.Second, 1
}

// contents is every key of the queue, byte for byte.
func (r *rig) contents() string {
	r.t.Helper()
	types, reads := r.Cli.Pipeline(), r.Cli.Pipeline()
	for _, key := range r.Keys.all {
		types.Type(queuetest.CtxB, key.(string))
	}
	kinds, err := types.Exec(queuetest.CtxB)
	if err != nil {
		r.t.Fatal(err)
	}
	var heads []string
	for i, kind := range kinds {
		args, key := []any{}, r.Keys.all[i]
		switch kind := kind.(*redis.StatusCmd).Val(); kind {
		case "zset":
			args = append(args, "ZRANGE", key, 0, -1, "WITHSCORES")
		case "list":
			args = append(args, "LRANGE", key, 0, -1)
		case "hash":
			args = append(args, "HGETALL", key)
		case "string":
			args = append(args, "GET", key)
		case "none":
			continue
		}
		reads.Do(queuetest.CtxB, args...)
		heads = append(heads, fmt.Sprintf("%s %v", structures[i], kind.(*redis.StatusCmd).Val()))
	}
	got, err := reads.Exec(queuetest.CtxB)
	if err != nil {
		r.t.Fatal(err)
	}
	var out strings.Builder
	for i, cmd := range got {
		v := cmd.(*redis.Cmd).Val()
		if fields, hash := v.(map[any]any); hash { // which fmt sorts
			v = fmt.Sprintf("%q", fields)
		}
		fmt.Fprintf(&out, "%s %v\n", heads[i], v)
	}
	return names(out.String())
}

// TestKeysForMonitors: another program's keys in place of structures that only Monitors read stop no producer and no consumer.
func TestKeysForMonitors(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for _, key := range []string{r.Keys.consumers, r.Keys.history} {
			r.do("SET", key, "somebody else's")
		}
		r.put(msg("a", 0), msg("b", 0))
		c := newCall()
		got, err := r.Store.Fetch(context.Background(), c, FetchRequest{Want: 10, Presence: "{}", Settings: &r.with})
		if err != nil || len(got.Tags) != 2 {
			r.t.Fatalf("fetched %q, %v", got.Tags, err)
		}
		r.gave(got)
		r.done(ack("a"), ends(OutcomeGarbage, "b", 1, 0, "x"))
		r.at(11 * time.Minute) // a sweep is due
		r.fetch(NewCaller(), 0)
		for _, err := range r.Store.Consumers(context.Background()) {
			if !errors.Is(err, ErrWrongType) {
				r.t.Errorf("consumers: %v", err)
			}
		}
		if _, err := r.Store.History(context.Background()); !errors.Is(err, ErrWrongType) {
			r.t.Errorf("history: %v", err)
		}
		for _, key := range []string{r.Keys.consumers, r.Keys.history} {
			r.do("DEL", key)
		}
		r.equal("garbage", len(r.read().Garbage), 1)
	})
}
