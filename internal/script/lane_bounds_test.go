package script

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestTurnsOfOneCall: a call ends behind the message with which it has looked at many turns, has given or has taken back many. Other calls
// do the rest.
func TestTurnsOfOneCall(t *testing.T) {
	c := newCosts(t)
	const lanes = 20
	name := func(l int) string { return fmt.Sprint("l", l) }
	// fill stores messages of a lane, the first of one width and others of another.
	fill := func(r *rig, l, width, others, n int, first, rest time.Duration) {
		ms := []*SendMessage{inLane(name(l), width, fmt.Sprintf("%02d", l), first)}
		for i := range n {
			ms = append(ms, inLane(name(l), others, fmt.Sprintf("%02d%02d", l, i), rest))
		}
		r.send(NewCaller(), ms...)
	}
	acks := func(r *rig, width int) (all []Settlement) {
		got, err := r.Store.Fetch(context.Background(), newCall(), FetchRequest{Want: 500, Settings: &r.with})
		queuetest.Must(r.t, err)
		r.gave(got)
		for _, tag := range got.Tags {
			s := ack(names(tag))
			s.Lane = fmt.Sprintf("%03d%s", width, name(len(all)))
			all = append(all, s)
		}
		return r.leased(all)
	}
	settle := func(r *rig, all []Settlement) func() int {
		return func() int {
			got, err := r.Store.Settle(context.Background(), newCall(), all)
			if err != nil || len(got.Void) > 0 {
				r.t.Fatalf("%v, void %d", err, got.Void)
			}
			done := len(all) - len(got.Left)
			all = all[done:]
			return done
		}
	}
	for what, prepare := range map[string]func(r *rig) (call func() (done int), all int){
		"settle, widths that grow": func(r *rig) (func() int, int) {
			for l := range lanes {
				fill(r, l, 1, 100, 99, 0, 0)
			}
			return settle(r, acks(r, 1)), lanes
		},
		"put, widths that shrink": func(r *rig) (func() int, int) {
			var narrow []*SendMessage
			for l := range lanes {
				fill(r, l, 100, 100, 99, time.Hour, time.Hour)
				narrow = append(narrow, inLane(name(l), 1, fmt.Sprintf("n%02d", l), 0))
			}
			return func() int {
				got, err := r.Store.Send(context.Background(), newCall(), SendRequest{Messages: narrow})
				queuetest.Must(r.t, err)
				narrow = narrow[len(got.Answers):]
				return len(got.Answers)
			}, lanes
		},
		"steer, widths that shrink": func(r *rig) (func() int, int) {
			var targets []Spot
			for l := range lanes {
				fill(r, l, 100, 100, 99, time.Hour, time.Hour)
				r.send(NewCaller(), inLane(name(l), 1, fmt.Sprintf("n%02d", l), 2*time.Hour))
				targets = append(targets, Spot{Tag: queuetest.IDOf("narrow" + name(l))})
			}
			return func() int {
				got, err := r.Store.Steer(context.Background(), newCall(), SteerRequest{What: SteerAt, Targets: targets})
				queuetest.Must(r.t, err)
				targets = targets[len(got):]
				return len(got)
			}, lanes
		},
		"repair, lanes without turns": func(r *rig) (func() int, int) {
			var flaws []Flaw
			for l := range lanes {
				fill(r, l, 100, 100, 199, time.Hour, time.Hour)
				flaws = append(flaws, Flaw{What: "lane", Item: name(l)})
				for i := range 100 {
					id := queuetest.IDOf(fmt.Sprintf("%02d%02d", l, i-1))
					if i == 0 {
						id = queuetest.IDOf(fmt.Sprintf("%02d", l))
					}
					c.cli.ZRem(context.Background(), r.Keys.lanes, fmt.Sprintf("%s\x00\x00100%s", name(l), id))
					c.cli.ZRem(context.Background(), r.Keys.pending, id)
					c.cli.HDel(context.Background(), r.Keys.msg, id)
				}
			}
			return func() int {
				got, err := r.Store.Repair(context.Background(), flaws)
				queuetest.Must(r.t, err)
				flaws = flaws[len(got):]
				return len(got)
			}, lanes
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := queuetest.BaseOn(t, redis.NewClient(&redis.Options{Addr: c.server.Addr()}))
			r := &rig{Store: NewStore(c.cli, "dq", f.Name), t: t, name: f.Name, with: FetchSettings{Lease: rigLease, MaxLosses: 3}, leases: map[string]*Lease{}}
			r.Store.AttemptTimeout = time.Minute
			call, left := prepare(r)
			for left > 0 {
				done, inside := 0, 0
				for _, n := range queuetest.Commands(t, c.cli, func() { done = call() }) {
					inside += n
				}
				if left -= done; done == 0 || inside > 4000 {
					t.Fatalf("%d done in %d commands", done, inside)
				}
			}
			f.Check()
		})
	}
}

// TestScriptStaleTurn: a consumer that knows no lanes has given up a message, which is requeued and waits behind its own old turn. The sweep
// ends that turn.
func TestScriptStaleTurn(t *testing.T) {
	onReal(t, func(r *rig) {
		r.put(inLane("l", 1, "a", 0), inLane("l", 1, "b", 0))
		r.take("a")
		r.done(ends(OutcomeGarbage, "a", 1, 0, "x")) // names no lane
		r.equal("requeued", r.steers(SteerRequeue, r.now, "a"), stateGarbage)
		r.comesInOrder("a", "b")
	})
}

// TestScriptReplacedOutOfLane: a message that is replaced by one without a lane is due since it was due first, not since it got its turn.
func TestScriptReplacedOutOfLane(t *testing.T) {
	onReal(t, func(r *rig) {
		r.put(inLane("l", 1, "a", 0), inLane("l", 1, "b", 0, keyed("k")))
		r.take("a")
		r.at(time.Second)
		r.done(lane("l", ack("a")))
		r.send(NewCaller(), changes(ConflictReplace, msg("c", 0, keyed("k"))))
		r.expect("pending b@0s key k=b wake 0s")
		r.read()
	})
}
