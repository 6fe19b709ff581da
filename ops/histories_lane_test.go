package ops

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

const (
	laneClients   = 4
	laneRounds    = 300 // of each client
	laneHistories = 6   // lanes
	laneLease     = 150 * time.Millisecond
	laneLosses    = 2 // make a message poison
)

// laneWidth is the width of message n of a lane: of two lanes it is 1, of two it is 3, and in the others messages have both widths.
func laneWidth(lane, n int) int {
	if lane >= 4 {
		lane = n % 2 * 2
	}
	return 1 + lane/2*2
}

// A laneHistory is what was done to the lanes of a queue.
type laneHistory struct {
	*face.Fixture
	batches atomic.Int64
	losses  atomic.Int64 // of replies

	mu    sync.Mutex
	deeds map[string][]porcupine.Operation // by lane
	seen  map[what]int
	sent  []laneEntry
	dead  []laneEntry
}

// A laneEntry is a message that was sent, and its lane.
type laneEntry struct {
	id   string
	lane message.Lane
}

// add adds a deed to a lane. It was done between an instant and now.
func (h *laneHistory) add(lane string, from int64, d laneDeed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deeds[lane] = append(h.deeds[lane], porcupine.Operation{Input: d, Call: from, Return: time.Now().UnixMicro()})
	if d.what != didHandOut || len(d.ids) > 0 {
		h.seen[d.what]++
	}
}

// A laneClient sends, fetches and settles.
type laneClient struct {
	*laneHistory
	lossy   *script.Store // loses replies
	sender  *delayqueue.Publisher
	steerer *Queue
	settler *script.Caller
	fetcher *script.Caller
	held    []laneHeld
	failed  laneEntry // what failed last
}

// A laneHeld is a delivery that a client has, and has not settled.
type laneHeld struct {
	laneEntry
	tag   string
	lease *script.Lease
}

func (h *laneHistory) client() *laneClient {
	cli := h.Client()
	h.T.Cleanup(link.Interpose(cli, queuetest.LoseReplies(7, &h.losses)))
	c := &laneClient{laneHistory: h, lossy: script.NewStore(cli, "dq", h.Name), sender: delayqueue.NewPublisher(h.Name, cli),
		steerer: Of(delayqueue.NewMonitor(h.Name, cli)), settler: script.NewCaller(), fetcher: script.NewCaller()}
	c.lossy.AttemptTimeout = queuetest.Patience
	return c
}

// sends sends one to three messages of a lane at once. Some are lost with all their consumers, and some with the first.
func (c *laneClient) sends() {
	lane, n := rand.IntN(laneHistories), int(c.batches.Add(1))
	name, delay := fmt.Sprint("lane ", lane), time.Duration(rand.IntN(2))*rand.N(20*time.Millisecond).Truncate(time.Millisecond)
	var batch []delayqueue.Outgoing
	for i := range 1 + rand.IntN(3) {
		options := []delayqueue.MsgOption{delayqueue.WithLane(name, laneWidth(lane, n+i))}
		if delay > 0 {
			options = append(options, delayqueue.WithDelay(delay))
		}
		batch = append(batch, delayqueue.Outgoing{Payload: map[int]string{0: "lost always", 1: "lost once"}[rand.IntN(30)], Options: options})
	}
	from, d := time.Now().UnixMicro(), laneDeed{what: didSend}
	results, err := c.sender.SendBatch(queuetest.CtxB, batch)
	if err != nil {
		c.T.Error(err)
		return
	}
	c.mu.Lock()
	for i, r := range results {
		due := r.Info.Due.UnixMicro()
		d.msgs = append(d.msgs, laned{id: r.Info.ID, width: laneWidth(lane, n+i), from: due, to: due, batch: n, nth: i})
		c.sent = append(c.sent, laneEntry{r.Info.ID, message.Lane{Name: name, Width: laneWidth(lane, n+i)}})
	}
	c.mu.Unlock()
	c.add(name, from, d)
}

// fetches takes what is due, and forgets what is to be lost.
func (c *laneClient) fetches() {
	c.fetcher.Next()
	from := time.Now().UnixMicro()
	got, err := c.Calls().Fetch(queuetest.CtxB, c.fetcher, script.FetchRequest{Want: 3,
		Settings: &script.FetchSettings{Lease: laneLease, MaxLosses: laneLosses}})
	if err != nil {
		c.T.Error(err)
		return
	}
	deeds := map[string]*laneDeed{}
	for lane := range laneHistories {
		deeds[fmt.Sprint("lane ", lane)] = &laneDeed{what: didHandOut, at: int64(got.Now), none: len(got.Tags)+got.Lost == 0}
	}
	for _, dead := range got.Dead {
		e, _ := message.DecodeEnvelope(dead.Envelope)
		deeds[e.Lane.Name].dead = append(deeds[e.Lane.Name].dead, dead.ID)
		c.addDead(laneEntry{dead.ID, e.Lane})
	}
	for i, tag := range got.Tags {
		e, _ := message.DecodeEnvelope(got.Envelopes[i])
		id, n := message.SplitTag(tag)
		deeds[e.Lane.Name].ids = append(deeds[e.Lane.Name].ids, id)
		if e.Payload == "lost always" || e.Payload == "lost once" && n == 1 {
			continue
		}
		c.held = append(c.held, laneHeld{laneEntry{id, e.Lane}, tag, got.Lease})
	}
	for lane, d := range deeds {
		if d.none || len(d.ids)+len(d.dead) > 0 {
			c.add(lane, from, *d)
		}
	}
}

func (h *laneHistory) addDead(e laneEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = append(h.dead, e)
	h.seen[didDie]++
}

// settles ends two of three deliveries that the client has, each in some way; ack: all of them, and well.
func (c *laneClient) settles(ack bool) {
	var all []script.Settlement
	var ends, stays []laneHeld
	for _, m := range c.held {
		if !ack && rand.IntN(3) == 0 {
			stays = append(stays, m)
			continue
		}
		ends = append(ends, m)
		_, n := message.SplitTag(m.tag)
		s := script.Settlement{Lease: m.lease, Tag: m.tag, ID: m.id, Number: n, Lane: m.lane.Text()}
		s.Delay = rand.N(20 * time.Millisecond).Truncate(time.Microsecond)
		if !ack {
			s.Kind = []script.OutcomeKind{script.OutcomeAck, script.OutcomeAck, script.OutcomeAck, script.OutcomeRetry, script.OutcomeReady,
				script.OutcomeGarbage}[rand.IntN(6)]
		}
		s.Leaves = s.Kind == script.OutcomeRetry && rand.IntN(2) == 0
		all = append(all, s)
	}
	if c.held = stays; len(all) == 0 {
		return
	}
	c.settler.Next()
	from := time.Now().UnixMicro()
	got, err := c.lossy.Settle(queuetest.CtxB, c.settler, all)
	for err != nil && link.Transient(err) {
		got, err = c.lossy.Settle(queuetest.CtxB, c.settler, all)
	}
	if err != nil || len(got.Left) > 0 {
		c.T.Errorf("settle: %v, %d left", err, len(got.Left))
		return
	}
	now := time.Now().UnixMicro()
	for i, s := range all {
		m := ends[i]
		us := s.Delay.Microseconds()
		if s.Kind == script.OutcomeReady {
			us = 0
		}
		d := laneDeed{what: didFail, ids: []string{m.id}, msgs: []laned{{id: m.id, width: m.lane.Width, from: from + us, to: now + us}}}
		switch {
		case slices.Contains(got.Void, i):
			c.mu.Lock()
			c.seen[wasVoid]++
			c.mu.Unlock()
			continue
		case s.Leaves:
			d.what = didAgain
		case s.Kind == script.OutcomeRetry:
			c.failed = m.laneEntry
		case s.Kind == script.OutcomeGarbage:
			c.addDead(m.laneEntry)
			fallthrough
		case s.Kind == script.OutcomeAck:
			d.what = didEnd
		}
		c.add(m.lane.Name, from, d)
	}
}

// chooses finds a message to steer: one that waits for a retry, that the client holds, that is dead, or of those that were sent last.
func (c *laneClient) chooses() (m laneEntry, dead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed.id != "" && rand.IntN(3) > 0:
		m, c.failed = c.failed, laneEntry{}
		return m, false
	case len(c.held) > 0 && rand.IntN(2) == 0:
		return c.held[0].laneEntry, false
	case len(c.dead) > 0 && rand.IntN(3) == 0:
		i := rand.IntN(len(c.dead))
		m = c.dead[i]
		c.dead = slices.Delete(c.dead, i, i+1)
		return m, true
	case len(c.sent) > 0:
		return c.sent[max(0, len(c.sent)-1-rand.IntN(30))], false
	}
	return m, false
}

// steers takes out, puts off or brings back a message.
func (c *laneClient) steers() {
	m, dead := c.chooses()
	if m.id == "" {
		return
	}
	from := time.Now().UnixMicro()
	var d laneDeed
	var err error
	switch {
	case dead:
		err = c.steerer.Requeue(queuetest.CtxB, m.id)
		d = laneDeed{what: didRequeue, msgs: []laned{{id: m.id, width: m.lane.Width, from: from, to: time.Now().UnixMicro()}}}
	case rand.IntN(2) == 0:
		at := time.Now().Add(rand.N(30*time.Millisecond) - 5*time.Millisecond).Truncate(time.Microsecond)
		err = c.steerer.Reschedule(queuetest.CtxB, m.id, at)
		d = laneDeed{what: didShift, ids: []string{m.id}, msgs: []laned{{from: at.UnixMicro()}}, until: time.Now().UnixMicro()}
	default:
		d.what, err = c.takesOut(m.id)
		d.ids = []string{m.id}
	}
	switch {
	case errors.Is(err, delayqueue.ErrNotFound):
		d = laneDeed{what: wasGone, ids: []string{m.id}}
	case errors.Is(err, delayqueue.ErrWrongState):
		return
	case err != nil:
		c.T.Error(err)
		return
	}
	c.add(m.lane.Name, from, d)
}

// takesOut intercepts or cancels a message.
func (c *laneClient) takesOut(id string) (what, error) {
	take, cancels := c.steerer.Intercept, rand.IntN(4) > 0
	if cancels {
		take = c.steerer.Cancel
	}
	got, err := take(queuetest.CtxB, id)
	switch {
	case err != nil:
		return "", err
	case got.State == delayqueue.StateGone || got.State == delayqueue.StateGarbage:
		return wasGone, nil
	case got.State == delayqueue.StateUnack && !cancels: // it stays
		return "", delayqueue.ErrWrongState
	}
	return didEnd, nil
}

// round does something.
func (c *laneClient) round() {
	switch n := rand.IntN(20); {
	case n < 4:
		c.sends()
	case n < 11:
		c.fetches()
	case n < 16:
		c.settles(false)
	default:
		c.steers()
	}
}

// stuckAt has a line for each of the last deeds that were possible, and for those that were next and were not.
func stuckAt(ops []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(laneLives(new(int)), ops, 0)
	var longest []int
	for _, one := range info.PartialLinearizations()[0] {
		if len(one) > len(longest) {
			longest = one
		}
	}
	state, done := laneLife(nil), map[int]bool{}
	var text strings.Builder
	for i, n := range longest {
		done[n] = true
		if state, _ = state.next(ops[n].Input.(laneDeed)); i >= len(longest)-10 {
			fmt.Fprintf(&text, "\n%d to %d: %+v", ops[n].Call, ops[n].Return, ops[n].Input)
		}
	}
	fmt.Fprintf(&text, "\nnow the lane has %+v, and next was none of", state)
	var rest []porcupine.Operation
	for i, op := range ops {
		if !done[i] {
			rest = append(rest, op)
		}
	}
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, op := range rest[:min(len(rest), laneClients)] {
		fmt.Fprintf(&text, "\n%d to %d: %+v", op.Call, op.Return, op.Input)
	}
	return text.String()
}

// TestLaneHistories has clients send into lanes, fetch, ack, fail, lose leases and replies, cancel, reschedule and requeue, all at once.
// What they saw of each lane must be possible if its messages begin in order, and no more of them at a time than its width says.
func TestLaneHistories(t *testing.T) {
	t.Parallel()
	h := &laneHistory{Fixture: face.New(t), deeds: map[string][]porcupine.Operation{}, seen: map[what]int{}}
	last := h.client()
	last.fetches() // there is a queue
	var all sync.WaitGroup
	for range laneClients {
		c := h.client()
		all.Go(func() {
			for range laneRounds {
				c.round()
			}
			c.settles(true)
		})
	}
	all.Wait()
	monitor := delayqueue.NewMonitor(h.Name, h.Cli)
	queuetest.Eventually(t, "all is handled", func() bool {
		last.fetches()
		last.settles(true)
		n, err := monitor.Counts(queuetest.CtxB)
		queuetest.Must(t, err)
		return n.Pending+n.Ready+n.Unack+n.Retry+n.Waiting == 0
	})
	h.Check()
	for _, lane := range slices.Sorted(maps.Keys(h.deeds)) {
		h.add(lane, time.Now().UnixMicro(), laneDeed{what: wasEmpty})
		steps := 0
		if !porcupine.CheckOperations(laneLives(&steps), h.deeds[lane]) {
			t.Errorf("%s cannot have lived like this, or was not judged in %d steps:%s", lane, steps, stuckAt(h.deeds[lane]))
		}
	}
	t.Log(h.seen, h.losses.Load(), "replies were lost")
	for _, what := range []what{didSend, didHandOut, didEnd, didFail, didAgain, didShift, didRequeue, didDie, wasVoid, wasGone} {
		if h.seen[what] == 0 {
			t.Errorf("no message was %s", what)
		}
	}
	if h.losses.Load() == 0 {
		t.Error("no reply was lost")
	}
}
