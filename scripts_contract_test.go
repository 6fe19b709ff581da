package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// A wrongTypeCase makes a call of a script.
type wrongTypeCase struct {
	script  *script
	mayPass bool // some keys are not touched
	lost    bool // msg is read only where state is lost: TestQueueWithoutState
	build   func(r *rig) (call func() error)
}

// wrongType: where one key of a queue belongs to another program, a script changes
// nothing at all, and the same call works once the key is gone.
func wrongType(t *testing.T, cases map[string]wrongTypeCase) {
	t.Helper()
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, i := range c.script.keys {
				if !c.mayPass && slices.Contains([]string{"consumers", "history"}, structures[i]) {
					continue // TestKeysForMonitors
				}
				if c.lost && structures[i] == "msg" {
					continue
				}
				t.Run(structures[i], func(t *testing.T) {
					onBoth(t, func(r *rig) {
						call := c.build(r)
						key := r.keys.all[i].(string)
						aside := r.cli.Rename(ctxB, key, "aside of "+r.name).Err() == nil
						r.do("SET", key, "somebody else's")
						before := r.contents()
						err := call()
						passed := err == nil && c.mayPass
						if !passed && !errors.Is(err, ErrWrongType) {
							r.t.Errorf("error %v, want ErrWrongType", err)
						}
						if after := r.contents(); !passed && after != before {
							r.t.Errorf("changed from\n%sto\n%s", before, after)
						}
						r.do("DEL", key)
						if aside {
							r.do("RENAME", "aside of "+r.name, key)
						}
						if err := call(); err != nil {
							r.t.Errorf("with the key back: %v", err)
						}
						if !strings.Contains(name, "missing") {
							r.read()
						}
					})
				})
			}
		})
	}
}

// TestScriptWrongTypeOfProducers: another program's key stops what a producer calls.
func TestScriptWrongTypeOfProducers(t *testing.T) { wrongType(t, producersCalls) }

var producersCalls = map[string]wrongTypeCase{
	"send": {script: sendScript, build: func(r *rig) func() error {
		r.put(msg("old", time.Hour, keyed("old")))
		heldKey(r)
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.send(ctxB, c, sendRequest{messages: []*sendMessage{msg("c", 0, keyed("l")), msg("d", 0, keyed("k")), msg("b", 0)}})
			return err
		}
	}},
	"single": {script: singleScript, build: func(r *rig) func() error {
		r.put(msg("old", time.Hour))
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.send(ctxB, c, sendRequest{messages: []*sendMessage{msg("a", 0)}})
			return err
		}
	}},
	"put": {script: putScript, build: func(r *rig) func() error {
		r.put(msg("old", time.Hour, keyed("old")))
		r.answers(newCaller(), numbered(msg("s", time.Hour), "s", 1), part("g", time.Hour, 0), part("h", time.Hour, 0))
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.send(ctxB, c, sendRequest{messages: []*sendMessage{numbered(msg("a", 0, keyed("k")), "s", 2),
				numbered(msg("b", 0), "t", 1)}})
			return err
		}
	}},
	"put, onto others": {script: putScript, mayPass: true, build: func(r *rig) func() error {
		everywhere(r)
		r.answers(newCaller(), part("p", time.Hour, 0), on(Replace, true, msg("q", time.Hour, keyed("q"))))
		c := after(newCaller())
		return func() error {
			_, err := r.store.send(ctxB, c, sendRequest{messages: []*sendMessage{part("r", time.Hour, 2),
				on(Replace, true, msg("s", 0, keyed("q"))), on(Reschedule, true, msg("t", 0, keyed("ready"))),
				on(Keep, true, msg("u", 0, keyed("held"))), on(Replace, true, msg("v", 0, keyed("k")))}})
			return err
		}
	}},
	"intercept by id": {script: interceptScript, build: func(r *rig) func() error {
		r.answers(newCaller(), part("a", time.Hour, 0), part("b", time.Hour, 0))
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.intercept(ctxB, c, "id", idOf("a"), false)
			return err
		}
	}},
	"intercept by key": {script: interceptScript, build: func(r *rig) func() error {
		r.answers(newCaller(), part("a", time.Hour, 0), part("b", time.Hour, 0))
		c := newCaller()
		c.next()
		return func() error { _, err := r.store.intercept(ctxB, c, "key", "k", false); return err }
	}},
}

// TestScriptWrongTypeOfConsumers: another program's key stops what a consumer calls.
func TestScriptWrongTypeOfConsumers(t *testing.T) { wrongType(t, consumersCalls) }

var consumersCalls = map[string]wrongTypeCase{
	"fetch": {script: fetchScript, build: func(r *rig) func() error {
		everywhere(r)
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.fetch(ctxB, c, fetchRequest{want: 10, seed: 7, settings: &r.with})
			return err
		}
	}},
	"fetch, no lease ran out": {script: fetchScript, mayPass: true, build: func(r *rig) func() error {
		r.hand(msg("a", 0), msg("b", 0))
		r.done(ends(outcomeRetry, "a", 1, 0, "x"), ends(outcomeReady, "b", 0, 0, ""))
		r.put(msg("c", 0))
		r.at(2 * time.Second)
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.fetch(ctxB, c, fetchRequest{want: 10, seed: 7, settings: &r.with})
			return err
		}
	}},
	"fetch, an envelope is missing": {script: fetchScript, mayPass: true, build: func(r *rig) func() error {
		r.put(msg("a", 0), msg("b", 0))
		r.do("HDEL", r.keys.msg, idOf("a"))
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.fetch(ctxB, c, fetchRequest{want: 10, seed: 7, settings: &r.with})
			return err
		}
	}},
	"fetch, repeated": {script: fetchScript, mayPass: true, build: func(r *rig) func() error {
		r.hand(msg("a", 0), msg("b", 0))
		r.done(ends(outcomeReady, "b", 0, 0, ""))
		r.put(msg("c", 0))
		c := r.take("2:b c")
		return func() error {
			_, err := r.store.fetch(ctxB, c, fetchRequest{want: 10, seed: 7, settings: &r.with})
			return err
		}
	}},
	"settle": {script: settleScript, build: func(r *rig) func() error {
		everywhere(r)
		r.hand(msg("p", 0), msg("q", 0), msg("r", 0), msg("s", 0), msg("t", 0, keyed("t")), msg("u", 0))
		c := newCaller()
		c.next()
		return func() error {
			outcomes := []settlement{then(ack("p"), msg("next", time.Hour, keyed("next"))), ends(outcomeRetry, "q", 1, 0, "x"),
				ends(outcomeReady, "r", 0, 0, ""),
				ends(outcomeGarbage, "s", 1, 0, "x"), holding("t", time.Hour, "t"), kept("u", time.Hour, "v")}
			_, err := r.store.settle(ctxB, c, outcomes)
			return err
		}
	}},
	"settle, what follows has a key that stays taken": {script: settleScript, mayPass: true, build: func(r *rig) func() error {
		heldKey(r)
		r.hand(msg("p", 0))
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.settle(ctxB, c, []settlement{then(ack("p"), msg("next", time.Hour, keyed("k")))})
			return err
		}
	}},
	"settle, plain acks of which one is stale": {script: settleScript, mayPass: true, build: func(r *rig) func() error {
		r.hand(msg("p", 0), msg("q", 0), msg("r", 0))
		r.equal("cancel", r.cancel("id", idOf("q")), StateUnack)
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.settle(ctxB, c, []settlement{ack("p"), ack("q"), ack("r")})
			return err
		}
	}},
	"settle, a handler that runs on": {script: settleScript, mayPass: true, build: func(r *rig) func() error {
		r.limits = Limits{Concurrency: 1}
		r.hand(msg("a", 0))
		c := newCaller()
		c.next()
		return func() error {
			o := ends(outcomeRetry, "a", 1, 0, "slow")
			o.overrun = time.Minute
			_, err := r.store.settle(ctxB, c, []settlement{o})
			return err
		}
	}},
	"overrun": {script: overrunScript, build: func(r *rig) func() error {
		r.limits = Limits{Concurrency: 1}
		r.hand(msg("a", 0))
		return func() error { return r.store.overrun(ctxB, time.Hour, []string{idOf("a")}) }
	}},
	"extend": {script: extendScript, build: func(r *rig) func() error {
		r.hand(msg("a", 0))
		return func() error {
			_, err := r.store.extend(ctxB, time.Hour, []string{idOf("a"), idOf("nobody")})
			return err
		}
	}},
}

// TestScriptWrongTypeOfMonitors: another program's key stops what a monitor calls.
func TestScriptWrongTypeOfMonitors(t *testing.T) { wrongType(t, monitorsCalls) }

var monitorsCalls = map[string]wrongTypeCase{
	"counts": {script: countsScript, mayPass: true, build: func(r *rig) func() error {
		everywhere(r)
		return func() error { _, err := r.store.counts(ctxB); return err }
	}},
	"look": {script: lookScript, mayPass: true, build: func(r *rig) func() error {
		r.hand(msg("a", 0, keyed("k")))
		return func() error { _, err := r.store.look(ctxB, "key", "k"); return err }
	}},
	"list": {script: listScripts[StatePending], build: func(r *rig) func() error {
		r.put(msg("a", time.Hour))
		return func() error {
			_, err := r.store.list(ctxB, listRequest{place{in: StatePending, from: math.MinInt64, to: math.MaxInt64, part: "later"}, 10, spot{}})
			return err
		}
	}},
	"forecast": {script: forecastScript, build: func(r *rig) func() error {
		r.put(msg("a", time.Hour))
		return func() error { _, err := r.store.forecast(ctxB, 0, time.Minute, 3); return err }
	}},
	"steer": {script: steerScript, build: func(r *rig) func() error {
		everywhere(r)
		c := newCaller()
		c.next()
		return func() error {
			_, err := r.store.steer(ctxB, c, steerRequest{what: "by", us: 1e6,
				targets: []spot{{tag: idOf("due")}, {tag: idOf("retry")}, {tag: idOf("ready")}}})
			return err
		}
	}},
	"steer, requeue": {script: steerScript, mayPass: true, build: func(r *rig) func() error {
		everywhere(r)
		return steering(r, steerRequest{what: steerRequeue, us: r.now, targets: []spot{{tag: idOf("dead")}}})
	}},
	"steer, delete": {script: steerScript, mayPass: true, build: func(r *rig) func() error {
		everywhere(r)
		return steering(r, steerRequest{what: steerDelete, targets: []spot{{tag: idOf("dead")}, {tag: idOf("done")}, {tag: idOf("group")}}})
	}},
	"steer, release": {script: steerScript, mayPass: true, build: func(r *rig) func() error {
		everywhere(r)
		return steering(r, steerRequest{what: steerRelease, only: "key", targets: []spot{{tag: "held"}}})
	}},
	"limit": {script: limitScript, lost: true, build: func(r *rig) func() error {
		everywhere(r)
		c := after(newCaller())
		return func() error { _, err := r.store.setLimits(ctxB, c, Limits{Concurrency: 5}); return err }
	}},
	"await": {script: awaitScript, mayPass: true, build: func(r *rig) func() error {
		everywhere(r)
		return func() error {
			_, err := r.store.await(ctxB, []string{idOf("done"), idOf("dead"), idOf("due")})
			return err
		}
	}},
	"sequences": {script: sequencesScript, build: func(r *rig) func() error {
		r.answers(newCaller(), numbered(msg("a", time.Hour), "s", 1))
		return func() error { _, err := r.store.sequences(ctxB, "", "0"); return err }
	}},
	"dropsequence": {script: dropSequenceScript, build: func(r *rig) func() error {
		r.answers(newCaller(), numbered(msg("a", time.Hour), "s", 1))
		c := newCaller()
		c.next()
		return func() error { _, err := r.store.dropSequence(ctxB, c, "s"); return err }
	}},
	"passsequence": {script: passSequenceScript, build: func(r *rig) func() error {
		r.answers(newCaller(), numbered(msg("a", time.Hour), "s", 1))
		c := newCaller()
		c.next()
		return func() error { _, _, err := r.store.passSequence(ctxB, c, "s", 2); return err }
	}},
	"pause": {script: pauseScript, lost: true, build: func(r *rig) func() error {
		everywhere(r)
		c := newCaller()
		c.next()
		return func() error { return r.store.pause(ctxB, c, forever, onBehalf{}) }
	}},
	"note": {script: noteScript, build: func(r *rig) func() error {
		r.notes("a", journalDone, "", "{}")
		return func() error {
			_, err := r.store.note(ctxB, &journalNote{word: journalDone, token: tokenOf("b"), text: "{}", keep: time.Hour}, 0)
			return err
		}
	}},
	"note, again": {script: noteScript, build: func(r *rig) func() error {
		made, _ := r.notes("a", journalRuns, "", "{}")
		return func() error {
			_, err := r.store.note(ctxB, &journalNote{word: journalStop, token: tokenOf("a"), made: made, keep: time.Hour}, 0)
			return err
		}
	}},
	"journal": {script: journalScript, build: func(r *rig) func() error {
		r.notes("a", journalDone, "", "{}")
		return func() error { _, err := r.store.journal(ctxB, journalRequest{limit: 1}); return err }
	}},
}

func steering(r *rig, do steerRequest) func() error {
	c := after(newCaller())
	return func() error { _, err := r.store.steer(ctxB, c, do); return err }
}

// everywhere makes a state in which a fetch touches every structure: an expired lease, aged
// garbage, what is done and over, and due messages in ready, pending and retry, all of them with keys.
func everywhere(r *rig) {
	r.do("HSET", r.keys.key, "held", "acked:"+idOf("held"))
	r.do("ZADD", r.keys.held, fmt.Sprint(r.now+10_000_000), "held")
	r.do("HSET", r.keys.state, "held", fmt.Sprint(r.now+10_000_000))
	r.hand(msg("done", 0, keyed("done")), msg("lost", 0, keyed("lost")), msg("dead", 0, keyed("dead")), msg("ready", 0, keyed("ready")),
		msg("retry", 0, keyed("retry")))
	r.done(ends(outcomeGarbage, "dead", 1, 0, "x", "dead"), ends(outcomeRetry, "retry", 1, 0, "x"), ends(outcomeReady, "ready", 0, 0, ""),
		kept("done", 10*time.Second, "v", "done"))
	r.answers(newCaller(), part("group", 0, 0), part("grows", 0, 0))
	r.put(msg("due", 0, keyed("due")))
	r.tickTo(9 * time.Second)
	r.at(11 * time.Second)
	r.with.garbageAge, r.with.maxLosses = time.Second, 1
}

// contents is every key of the queue, byte for byte.
func (r *rig) contents() string {
	r.t.Helper()
	ctx := context.Background()
	var out strings.Builder
	for _, key := range r.keys.all {
		key := key.(string)
		kind := r.cli.Type(ctx, key).Val()
		var args []any
		switch kind {
		case "zset":
			args = []any{"ZRANGE", key, 0, -1, "WITHSCORES"}
		case "list":
			args = []any{"LRANGE", key, 0, -1}
		case "hash":
			args = []any{"HGETALL", key}
		case "string":
			args = []any{"GET", key}
		case "none":
			continue
		}
		v, err := r.cli.Do(ctx, args...).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		if kind == "hash" { // in any order
			var fields []string
			for k, v := range r.cli.HGetAll(ctx, key).Val() {
				fields = append(fields, fmt.Sprintf("%q=%q", k, v))
			}
			slices.Sort(fields)
			v = fields
		}
		fmt.Fprintf(&out, "%s %s %v\n", key, kind, v)
	}
	return names(strings.ReplaceAll(out.String(), "{dq:"+r.name+"}:", ""))
}

// TestKeysForMonitors: somebody else's keys in place of those that only Monitors read stop nothing.
func TestKeysForMonitors(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for _, key := range []string{r.keys.consumers, r.keys.history} {
			r.do("SET", key, "somebody else's")
		}
		r.put(msg("a", 0), msg("b", 0))
		c := newCaller()
		c.next()
		got, err := r.store.fetch(context.Background(), c, fetchRequest{want: 10, presence: "{}", settings: &r.with})
		if err != nil || len(got.tags) != 2 {
			r.t.Fatalf("fetched %q, %v", got.tags, err)
		}
		r.done(ack("a"), ends(outcomeGarbage, "b", 1, 0, "x"))
		r.at(11 * time.Minute) // a sweep is due
		r.fetch(newCaller(), 0)
		for _, err := range r.store.consumers(context.Background()) {
			if !errors.Is(err, ErrWrongType) {
				r.t.Errorf("consumers: %v", err)
			}
		}
		if _, err := r.store.history(context.Background()); !errors.Is(err, ErrWrongType) {
			r.t.Errorf("history: %v", err)
		}
		for _, key := range []string{r.keys.consumers, r.keys.history} {
			r.do("DEL", key)
		}
		r.equal("garbage", len(r.read().Garbage), 1)
	})
}
