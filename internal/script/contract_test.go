package script

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// A contractCase is a call of a script, in a queue that build makes. c is one call of one caller, which is repeated.
type contractCase struct {
	script *Script
	passes string // structures, with blanks between, in whose place another key stops nothing; "any": some are not touched
	build  func(r *rig)
	call   func(r *rig, c *Caller) error
}

func (r *rig) sends(c *Caller, ms ...*SendMessage) error {
	return queuetest.Failure(r.Store.Send(queuetest.CtxB, c, SendRequest{Messages: ms}))
}

func (r *rig) fetches(c *Caller, bytes int) error {
	return queuetest.Failure(r.Store.Fetch(queuetest.CtxB, c,
		FetchRequest{Want: 10, Bytes: bytes, Seed: 7, Settings: &r.with}))
}

func (r *rig) settles(c *Caller, all ...Settlement) error {
	return queuetest.Failure(r.Store.Settle(queuetest.CtxB, c, r.leased(all), false))
}

// intercepting, steering, listing and fetching are calls of a table.
func intercepting(by, what string) func(r *rig, c *Caller) error {
	return func(r *rig, c *Caller) error {
		return queuetest.Failure(r.Store.Intercept(queuetest.CtxB, c, by, what, false))
	}
}

func steering(do SteerRequest) func(r *rig, c *Caller) error {
	return func(r *rig, c *Caller) error { return queuetest.Failure(r.Store.Steer(queuetest.CtxB, c, do)) }
}

func listing(p ListRequest) func(r *rig, c *Caller) error {
	return func(r *rig, _ *Caller) error { return queuetest.Failure(r.Store.List(queuetest.CtxB, p)) }
}

func fetching(r *rig, c *Caller) error { return r.fetches(c, 0) }

func ticking(r *rig, c *Caller) error {
	return queuetest.Failure(r.Store.Tick(queuetest.CtxB, c,
		TickRequest{Again: r.ticked[c.ID], Seed: 7, Settings: &r.with}))
}

// storing and handing make queues of a table.
func storing(ms ...*SendMessage) func(r *rig) { return func(r *rig) { r.put(ms...) } }

func handing(ms ...*SendMessage) func(r *rig) { return func(r *rig) { r.hand(ms...) } }

func twoParts(r *rig)    { r.answers(NewCaller(), part("a", time.Hour, 0), part("b", time.Hour, 0)) }
func oneNumbered(r *rig) { r.answers(NewCaller(), numbered(msg("a", time.Hour), "s", 1)) }
func oneNote(r *rig)     { r.notes("a", JournalDone, "", "{}") }

// askedAlone asks for a message on its last chance, which is deferred.
func askedAlone() contractCase {
	named := ""
	return contractCase{FetchScript, "any", func(r *rig) {
		onLastChance(r, "l", 1)
		r.at(time.Second)
		named = r.ask(newCall(), FetchRequest{Want: 1}).Reserved
	}, func(r *rig, c *Caller) error {
		return queuetest.Failure(r.Store.Fetch(queuetest.CtxB, c, FetchRequest{Want: 1, Alone: named, Settings: &r.with}))
	}}
}

// contractCalls are calls of all scripts that read or write more than one key.
var contractCalls = map[string]contractCase{
	"send": {SendScript, "", func(r *rig) { r.put(msg("old", time.Hour, keyed("old"))); heldKey(r) },
		func(r *rig, c *Caller) error {
			return r.sends(c, msg("c", 0, keyed("l")), msg("d", 0, keyed("k")), msg("b", 0))
		}},
	"single": {SingleScript, "", storing(msg("old", time.Hour)), func(r *rig, c *Caller) error {
		return r.sends(c, msg("a", 0))
	}},
	"put": {plainPut, "", func(r *rig) {
		r.put(msg("old", time.Hour, keyed("old")))
		r.answers(NewCaller(), numbered(msg("s", time.Hour), "s", 1), part("g", time.Hour, 0), part("h", time.Hour, 0))
		r.put(inLane("l", 1, "l1", time.Hour), inLane("l", 1, "l2", time.Hour))
	}, func(r *rig, c *Caller) error {
		return r.sends(c, numbered(msg("a", 0, keyed("k")), "s", 2),
			numbered(msg("b", 0), "t", 1), inLane("l", 1, "l3", 0), inLane("l", 1, "l4", 0))
	}},
	"put, onto others": {PutScript, "any", func(r *rig) {
		everywhere(r)
		r.answers(NewCaller(), part("p", time.Hour, 0), on(ConflictReplace, true, msg("q", time.Hour, keyed("q"))))
	}, func(r *rig, c *Caller) error {
		return r.sends(c, part("r", time.Hour, 2),
			on(ConflictReplace, true, msg("s", 0, keyed("q"))), on(ConflictReschedule, true, msg("t", 0, keyed("ready"))),
			on(ConflictKeep, true, msg("u", 0, keyed("held"))), on(ConflictReplace, true, msg("v", 0, keyed("k"))))
	}},
	"intercept by id":  {InterceptScript, "", twoParts, intercepting("id", queuetest.IDOf("a"))},
	"intercept by key": {InterceptScript, "", twoParts, intercepting("key", "k")},
	"fetch":            {FetchScript, "garbage done waiting", everywhere, fetching},
	"fetch, no lease ran out": {FetchScript, "any", func(r *rig) {
		r.hand(msg("a", 0), msg("b", 0))
		r.done(fails("a"), ends(OutcomeReady, "b", 0, 0, ""))
		r.put(msg("c", 0))
		r.at(2 * time.Second)
	}, fetching},
	"fetch, an envelope is missing": {FetchScript, "any", func(r *rig) {
		r.put(msg("a", 0), msg("b", 0))
		r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
	}, fetching},
	"fetch, repeated": {FetchScript, "any", func(r *rig) {
		r.hand(msg("a", 0), msg("b", 0))
		r.done(ends(OutcomeReady, "b", 0, 0, ""))
		r.put(msg("c", 0))
		r.equal("handed out", handed(r.fetch(&Caller{ID: "again"}, 2)), "2:b c")
	}, func(r *rig, _ *Caller) error { return r.fetches(&Caller{ID: "again", N: 1}, 0) }},
	"settle": {plainSettle, "", func(r *rig) {
		everywhere(r)
		r.hand(msg("p", 0), msg("q", 0), msg("r", 0), msg("s", 0), msg("t", 0, keyed("t")), msg("u", 0))
	}, func(r *rig, c *Caller) error {
		return r.settles(c, then(lane("l", ack("gone")), msg("after", time.Hour, keyed("after"))), ack("p"), fails("q"),
			ends(OutcomeReady, "r", 0, 0, ""),
			ends(OutcomeGarbage, "s", 1, 0, "x"), holding("t", time.Hour, "t"), kept("u", time.Hour, "v"))
	}},
	"settle, acks that count, and change other messages": {SettleScript, "any", func(r *rig) {
		everywhere(r)
		r.answers(NewCaller(), waitsFor(2, msg("w", time.Hour, keyed("w"))), part("g", time.Hour, 0),
			waitsFor(1, msg("x", time.Hour, keyed("x"))))
		r.hand(msg("p", 0), msg("q", 0), msg("r", 0))
	}, func(r *rig, c *Caller) error {
		return r.settles(c,
			counting("w", then(ack("p"), part("h", time.Hour, 2), waitsFor(3, msg("n", time.Hour, keyed("n"))))),
			counting("x", then(ack("q"), on(ConflictReschedule, true, msg("s", 0, keyed("ready"))))),
			counting("w", then(ack("r"), on(ConflictReplace, true, msg("v", time.Hour, keyed("k"))))))
	}},
	"settle, an ack that a message follows": {SettleScript, "any", handing(msg("p", 0)), func(r *rig, c *Caller) error {
		return r.settles(c, then(ack("p"), msg("next", time.Hour)))
	}},
	"settle, what follows has a key that stays taken": {SettleScript, "any", func(r *rig) {
		heldKey(r)
		r.hand(msg("p", 0))
	},
		func(r *rig, c *Caller) error { return r.settles(c, then(ack("p"), msg("next", time.Hour, keyed("k")))) }},
	"settle, plain acks of which one is stale": {SettleScript, "any", func(r *rig) {
		r.hand(msg("p", 0), msg("q", 0), msg("r", 0))
		r.equal("cancel", r.cancel("id", queuetest.IDOf("q")), stateUnack)
	}, func(r *rig, c *Caller) error { return r.settles(c, ack("p"), ack("q"), ack("r")) }},
	"put into lanes": {PutScript, "any", func(r *rig) {
		everywhere(r)
		r.put(inLane("l", 1, "p", time.Hour, keyed("p")), inLane("l", 1, "q", 2*time.Hour, keyed("q")))
	}, func(r *rig, c *Caller) error {
		return r.sends(c, inLane("l", 1, "r", 0), changes(ConflictReplace, inLane("m", 1, "s", 0, keyed("p"))),
			changes(ConflictReschedule, inLane("l", 1, "t", 0, keyed("q"))),
			changes(ConflictReplace, inLane("l", 1, "u", 0, keyed("ready"))))
	}},
	"settle in lanes": {SettleScript, "any", func(r *rig) {
		everywhere(r)
		for _, l := range []string{"a", "b", "c"} {
			r.put(inLane(l, 1, l+"1", 0), inLane(l, 1, l+"2", 0))
		}
		r.fetch(NewCaller(), 10)
	}, func(r *rig, c *Caller) error {
		again := lane("c", ends(OutcomeRetry, "c1", 0, 0, ""))
		again.Leaves = true
		return r.settles(c, then(lane("a", ack("a1")), inLane("a", 1, "next", 0)),
			lane("b", ends(OutcomeGarbage, "b1", 1, 0, "x")), again)
	}},
	"intercept in a lane": {InterceptScript, "any",
		storing(inLane("l", 1, "a", time.Hour), inLane("l", 1, "b", time.Hour)),
		intercepting("id", queuetest.IDOf("a"))},
	"steer in lanes": {SteerScript, "any", func(r *rig) {
		everywhere(r)
		r.put(inLane("l", 1, "a", time.Hour), inLane("l", 1, "b", time.Hour))
	}, steering(SteerRequest{What: "by", Us: 1e6, Targets: targetsOf("a", "b")})},
	"fetch, one that is asked for alone": askedAlone(),
	"tick": {TickScript, "ready", func(r *rig) {
		everywhere(r)
		r.put(msg("p", 0))
		r.fetch(NewCaller(), 10)
		r.at(2*r.since(r.now) + time.Hour)
		r.with.GarbageAge = time.Second
	}, ticking},
	"tick, leases of lanes ran out": {TickScript, "any", func(r *rig) {
		r.put(inLane("l", 1, "a", 0), inLane("l", 1, "b", time.Minute), inLane("m", 1, "c", 0, keyed("k")),
			inLane("m", 1, "d", time.Minute))
		r.fetch(NewCaller(), 10)
		r.send(NewCaller(), changes(ConflictReplace, msg("e", time.Hour, keyed("k"))))
		r.tickTo(9 * time.Second)
		r.at(11 * time.Second)
		r.with.MaxLosses = 1
	}, ticking},
	"fetch, repeated, what is superseded has a lane": {FetchScript, "any", func(r *rig) {
		r.put(inLane("l", 1, "a", 0, sized(300)), inLane("m", 1, "c", 0, sized(300), keyed("k")),
			inLane("m", 1, "d", time.Minute))
		r.fetch(&Caller{ID: "again"}, 10)
		r.send(NewCaller(), changes(ConflictReplace, msg("e", time.Hour, keyed("k"))))
	}, func(r *rig, _ *Caller) error { return r.fetches(&Caller{ID: "again", N: 1}, 400) }},
	"keep": {KeepScript, "", handing(msg("a", 0), msg("b", 0)), func(r *rig, _ *Caller) error {
		return queuetest.Failure(r.Store.Keep(queuetest.CtxB, r.leases[tagFor("a")].Name, []string{tagFor("a")}))
	}},
	"extend": {ExtendScript, "", handing(msg("a", 0)), func(r *rig, _ *Caller) error {
		ids := []string{queuetest.IDOf("a"), queuetest.IDOf("nobody")}
		return queuetest.Failure(r.Store.Extend(queuetest.CtxB, time.Hour, []string{r.leases[ids[0]].Name}, ids))
	}},
	"counts": {CountsScript, "any", everywhere, func(r *rig, _ *Caller) error {
		return queuetest.Failure(r.Store.Counts(queuetest.CtxB))
	}},
	"balance": {BalanceScript, "", everywhere, func(r *rig, _ *Caller) error {
		return queuetest.Failure(r.Store.Balance(queuetest.CtxB))
	}},
	"look": {LookScript, "any", handing(msg("a", 0, keyed("k"))), func(r *rig, _ *Caller) error {
		return queuetest.Failure(r.Store.Look(queuetest.CtxB, "key", "k", 0))
	}},
	"list": {ListScripts[statePending], "", storing(msg("a", time.Hour)),
		listing(ListRequest{In: statePending, From: math.MinInt64, To: math.MaxInt64, Part: "later", Limit: 10})},
	"held": {ListScripts[stateUnack], "", handing(msg("a", 0), msg("b", 0)),
		listing(ListRequest{In: stateUnack, From: math.MinInt64, To: math.MaxInt64, Limit: 1})},
	"forecast": {ForecastScript, "", storing(msg("a", time.Hour)), func(r *rig, _ *Caller) error {
		return queuetest.Failure(r.Store.Forecast(queuetest.CtxB, 0, time.Minute, 3))
	}},
	"steer": {SteerScript, "", everywhere,
		steering(SteerRequest{What: "by", Us: 1e6, Targets: targetsOf("due", "retry", "ready")})},
	"steer, requeue": {SteerScript, "any", everywhere,
		steering(SteerRequest{What: SteerRequeue, Us: rigBase, Targets: targetsOf("dead")})},
	"steer, delete": {SteerScript, "any", everywhere,
		steering(SteerRequest{What: SteerDelete, Targets: targetsOf("dead", "done", "group")})},
	"steer, release": {SteerScript, "any", everywhere,
		steering(SteerRequest{What: SteerRelease, Only: "key", Targets: []Spot{{Tag: "held"}}})},
	"steer, garbage": {SteerScript, "any", storing(inLane("l", 1, "first", 0, keyed("k")), inLane("l", 1, "next", 0)),
		steering(SteerRequest{What: SteerGarbage, Targets: []Spot{{Tag: queuetest.IDOf("first"), Score: "x"}}})},
	"lanes": {LanesScript, "any", storing(inLane("l", 1, "first", 0), inLane("l", 1, "next", 0)),
		func(r *rig, _ *Caller) error {
			return queuetest.Failure(r.Store.Lanes(queuetest.CtxB, LanesRequest{Limit: 10}))
		}},
	"set, limits": {SetScript, "any", everywhere, func(r *rig, c *Caller) error {
		return queuetest.Failure(r.Store.SetLimits(queuetest.CtxB, c, RateLimits{Concurrency: 5}))
	}},
	"await": {AwaitScript, "any", everywhere, func(r *rig, _ *Caller) error {
		ids := []string{queuetest.IDOf("done"), queuetest.IDOf("dead"), queuetest.IDOf("due")}
		return queuetest.Failure(r.Store.Await(queuetest.CtxB, ids))
	}},
	"sequences": {SequencesScript, "", oneNumbered, func(r *rig, _ *Caller) error {
		return queuetest.Failure(r.Store.Sequences(queuetest.CtxB, "", "0"))
	}},
	"sequence, drop": {sequenceScript, "", oneNumbered, func(r *rig, c *Caller) error {
		return queuetest.Failure(r.Store.DropSequence(queuetest.CtxB, c, "s"))
	}},
	"sequence, pass": {sequenceScript, "", oneNumbered, func(r *rig, c *Caller) error {
		_, _, err := r.Store.PassSequence(queuetest.CtxB, c, "s", 2)
		return err
	}},
	"set, until": {SetScript, "msg", everywhere, func(r *rig, c *Caller) error {
		return r.Store.Pause(queuetest.CtxB, c, message.Forever, "", "")
	}},
	"repair": {repairScript, "", everywhere, func(r *rig, _ *Caller) error {
		flaws := []Flaw{{"record", queuetest.IDOf("due")}, {"alarm", "w"}, {"place", queuetest.IDOf("dead")}}
		return queuetest.Failure(r.Store.Repair(queuetest.CtxB, flaws))
	}},
	"note": {NoteScript, "", oneNote, func(r *rig, _ *Caller) error {
		note := &JournalNote{Word: JournalDone, Token: tokenOf("b"), Text: "{}", Keep: time.Hour}
		return queuetest.Failure(r.Store.Note(queuetest.CtxB, note, 0))
	}},
	"note, again": {NoteScript, "", func(r *rig) { r.notes("a", JournalRuns, "", "{}") }, func(r *rig, _ *Caller) error {
		note := &JournalNote{Word: JournalStop, Token: tokenOf("a"), Made: fmt.Sprint(rigBase), Keep: time.Hour}
		return queuetest.Failure(r.Store.Note(queuetest.CtxB, note, 0))
	}},
	"journal": {JournalScript, "", oneNote, func(r *rig, _ *Caller) error {
		return queuetest.Failure(r.Store.Journal(queuetest.CtxB, JournalRequest{Limit: 1}))
	}},
}

// everywhere makes a state in which a fetch touches every structure: an expired lease, aged garbage, a done message
// whose time is over, due messages in ready, pending and retry, all with keys, and a lane whose message that has the
// turn is lost.
func everywhere(r *rig) {
	r.do("HSET", r.Keys.of("key"), "held", "acked:"+queuetest.IDOf("held"))
	r.do("ZADD", r.Keys.of("holds"), fmt.Sprint(r.now+10_000_000), "held")
	r.do("HSET", r.Keys.State, "holds", fmt.Sprint(r.now+10_000_000))
	r.put(inLane("l", 1, "gone", 0))
	r.take("gone")
	r.put(inLane("l", 1, "turn", 0), inLane("l", 1, "next", 0))
	r.hand(msg("done", 0, keyed("done")), msg("lost", 0, keyed("lost")), msg("dead", 0, keyed("dead")),
		msg("ready", 0, keyed("ready")),
		msg("retry", 0, keyed("retry")))
	r.done(ends(OutcomeGarbage, "dead", 1, 0, "x", "dead"), ends(OutcomeRetry, "retry", 1, 0, "x"),
		ends(OutcomeReady, "ready", 0, 0, ""),
		kept("done", 10*time.Second, "v", "done"))
	r.answers(NewCaller(), part("group", 0, 0), part("grows", 0, 0))
	r.put(msg("due", 0, keyed("due")))
	r.tickTo(9 * time.Second)
	r.at(11 * time.Second)
	r.with.GarbageAge, r.with.MaxLosses = time.Second, 1
}

// TestKeysForMonitors: another program's keys in place of structures that only Monitors read stop no producer and no
// consumer.
func TestKeysForMonitors(t *testing.T) {
	onBoth(t, func(r *rig) {
		for _, key := range []string{r.Keys.of("consumers"), r.Keys.of("history")} {
			r.do("SET", key, "somebody else's")
		}
		r.put(msg("a", 0), msg("b", 0))
		c := newCall()
		got, err := r.Store.Fetch(queuetest.CtxB, c, FetchRequest{Want: 10, Presence: "{}", Settings: &r.with})
		if err != nil || len(got.Tags) != 2 {
			r.t.Fatalf("fetched %q, %v", got.Tags, err)
		}
		r.gave(got)
		r.done(ack("a"), ends(OutcomeGarbage, "b", 1, 0, "x"))
		r.at(11 * time.Minute) // a sweep is due
		r.fetch(NewCaller(), 0)
		if _, err := r.Store.Consumers(queuetest.CtxB); !errors.Is(err, ErrWrongType) {
			r.t.Errorf("consumers: %v", err)
		}
		if _, err := r.Store.History(queuetest.CtxB); !errors.Is(err, ErrWrongType) {
			r.t.Errorf("history: %v", err)
		}
		for _, key := range []string{r.Keys.of("consumers"), r.Keys.of("history")} {
			r.do("DEL", key)
		}
		r.equal("garbage", len(r.read().Garbage), 1)
	})
}
