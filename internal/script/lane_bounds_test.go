package script

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// wideLanes is a queue with lanes in which one message may make a call give, or take back, many turns. What is left
// of that work is done call by call.
type wideLanes struct {
	*rig
	left int        // so many messages, flaws or turns
	call func() int // does some of them, and returns how many
}

const manyLanes = 20

func laneName(l int) string { return fmt.Sprint("l", l) }

// fill stores messages of a lane, the first of one width and n of another.
func (w *wideLanes) fill(l, width, others, n int, first, rest time.Duration) {
	w.t.Helper()
	ms := []*SendMessage{inLane(laneName(l), width, fmt.Sprintf("%02d", l), first)}
	for i := range n {
		ms = append(ms, inLane(laneName(l), others, fmt.Sprintf("%02d%02d", l, i), rest))
	}
	w.send(NewCaller(), ms...)
}

// settles acks all that is fetched, each message in its lane of some width.
func (w *wideLanes) settles(width int) {
	got := w.fetch(NewCaller(), 500)
	var all []Settlement
	for _, tag := range got.Tags {
		s := ack(names(tag))
		l, err := strconv.Atoi(names(s.ID)[:2])
		queuetest.Must(w.t, err)
		s.Lane = message.Lane{Name: laneName(l), Width: width}.Text()
		all = append(all, s)
	}
	all, w.left = w.leased(all), len(all)
	w.call = func() int {
		got := w.settling(newCall(), all...)
		w.equal("void", len(got.Void), 0)
		done := len(all) - len(got.Left)
		all = all[done:]
		return done
	}
}

// steersAll makes messages due now.
func (w *wideLanes) steersAll(targets []Spot) {
	w.left = len(targets)
	w.call = func() int {
		got, err := w.Store.Steer(queuetest.CtxB, newCall(), SteerRequest{What: SteerAt, Targets: targets})
		queuetest.Must(w.t, err)
		for _, d := range got {
			if !d.Done {
				w.t.Errorf("%+v", d)
			}
		}
		targets = targets[len(got):]
		return len(got)
	}
}

// puts sends messages of width 1.
func (w *wideLanes) puts(narrow []*SendMessage) {
	w.left = len(narrow)
	w.call = func() int {
		got, err := w.Store.Send(queuetest.CtxB, newCall(), SendRequest{Messages: narrow})
		queuetest.Must(w.t, err)
		narrow = narrow[len(got.Answers):]
		return len(got.Answers)
	}
}

// robs deletes the messages of a lane that have turns, with their turns, as another program may.
func (w *wideLanes) robs(l int) {
	for i := range message.MaxWidth {
		id := queuetest.IDOf(fmt.Sprintf("%02d%02d", l, i-1))
		if i == 0 {
			id = queuetest.IDOf(fmt.Sprintf("%02d", l))
		}
		w.do("ZREM", w.Keys.of("lanes"), fmt.Sprintf("%s\x00\x00100%s", laneName(l), id))
		w.do("ZREM", w.Keys.of("pending"), id)
		w.do("HDEL", w.Keys.msg, id)
	}
}

// repairs has repair.lua mend all lanes.
func (w *wideLanes) repairs() {
	var flaws []Flaw
	for l := range manyLanes {
		flaws = append(flaws, Flaw{What: "lane", Item: laneName(l)})
	}
	w.left = manyLanes
	w.call = func() int {
		got, err := w.Store.Repair(queuetest.CtxB, flaws)
		queuetest.Must(w.t, err)
		for _, word := range got {
			w.equal("mended", word, "done")
		}
		flaws = flaws[len(got):]
		return len(got)
	}
}

// sweeps fetches until the sweep has given all turns.
func (w *wideLanes) sweeps() {
	c, before := NewCaller(), 0
	w.left = manyLanes * message.MaxWidth
	w.call = func() int {
		w.tickOf(c)
		n, err := w.Cli.ZCard(queuetest.CtxB, w.Keys.of("pending")).Result()
		queuetest.Must(w.t, err)
		given := int(n) - before
		before = int(n)
		return given
	}
}

// TestTurnsOfOneCall: a call ends behind the message with which it has looked at many turns, has given or has taken
// back many. Other calls do the rest.
func TestTurnsOfOneCall(t *testing.T) {
	c := newCosts(t)
	each := func(do func(w *wideLanes, l int)) func(w *wideLanes) {
		return func(w *wideLanes) {
			for l := range manyLanes {
				do(w, l)
			}
		}
	}
	wide := func(w *wideLanes, l int) { w.fill(l, 100, 100, 99, time.Hour, time.Hour) }
	for what, prepare := range map[string]func(w *wideLanes){
		"settle, widths that grow": func(w *wideLanes) {
			each(func(w *wideLanes, l int) { w.fill(l, 1, 100, 99, 0, 0) })(w)
			w.settles(1)
		},
		"put, widths that shrink": func(w *wideLanes) {
			var narrow []*SendMessage
			each(func(w *wideLanes, l int) {
				wide(w, l)
				narrow = append(narrow, inLane(laneName(l), 1, fmt.Sprintf("n%02d", l), 0))
			})(w)
			w.puts(narrow)
		},
		"steer, widths that shrink": func(w *wideLanes) {
			var targets []Spot
			each(func(w *wideLanes, l int) {
				wide(w, l)
				w.send(NewCaller(), inLane(laneName(l), 1, fmt.Sprintf("n%02d", l), 2*time.Hour))
				targets = append(targets, Spot{Tag: queuetest.IDOf(fmt.Sprintf("n%02d", l))})
			})(w)
			w.steersAll(targets)
		},
		"repair, lanes without turns": func(w *wideLanes) {
			each(func(w *wideLanes, l int) { w.fill(l, 100, 100, 199, time.Hour, time.Hour); w.robs(l) })(w)
			w.repairs()
		},
		"tick, lanes without turns": func(w *wideLanes) {
			each(func(w *wideLanes, l int) { w.fill(l, 100, 100, 199, time.Hour, time.Hour); w.robs(l) })(w)
			w.sweeps()
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := &wideLanes{rig: rigAt(t, c.server.Addr())}
			prepare(w)
			calls := 0
			for ; w.left > 0; calls++ {
				done, inside := 0, 0
				for _, n := range queuetest.Commands(t, c.cli, func() { done = w.call() }) {
					inside += n
				}
				if w.left -= done; done == 0 || inside > 4000 {
					t.Fatalf("%d done in %d commands", done, inside)
				}
			}
			if calls < 5 {
				t.Errorf("all was done in %d calls", calls)
			}
			w.read()
		})
	}
}

// TestTurnsOfRequeued: an ack of a message that was requeued finds its turn by its tag, and looks at no others. So
// one call ends a hundred.
func TestTurnsOfRequeued(t *testing.T) {
	w := &wideLanes{rig: newRig(t, false)}
	w.fill(0, 100, 100, 99, 0, 0)
	got := w.fetch(NewCaller(), 500)
	var dead []Settlement
	requeue := SteerRequest{What: SteerRequeue}
	for _, tag := range got.Tags {
		s := ends(OutcomeGarbage, names(tag), 1, 0, "x")
		s.Lane = message.Lane{Name: laneName(0), Width: 100}.Text()
		dead, requeue.Targets = append(dead, s), append(requeue.Targets, Spot{Tag: s.ID})
	}
	w.settle(NewCaller(), dead...)
	w.steered(requeue)
	w.settles(100)
	if n := w.call(); n != 100 || w.left != 100 {
		t.Errorf("%d of %d are acked", n, w.left)
	}
}

// TestScriptStaleTurn: a consumer that knows no lanes has given up a message, which is requeued and waits behind its
// own old turn. The sweep ends that turn.
func TestScriptStaleTurn(t *testing.T) {
	onReal(t, func(r *rig) {
		r.put(inLane("l", 1, "a", 0), inLane("l", 1, "b", 0))
		r.take("a")
		r.done(ends(OutcomeGarbage, "a", 1, 0, "x")) // names no lane
		r.equal("requeued", r.steers(SteerRequeue, r.now, "a"), stateGarbage)
		r.comesInOrder("a", "b")
	})
}
