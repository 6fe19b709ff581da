package delayqueue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Bulk says which messages a call for many is about, and who is told how it goes on.
//
// Such a call touches what was in these states when it began, each message once. It works in steps that hold the
// server for milliseconds, with pauses as long as the steps took, and may be cut off between or within them:
// BulkResult.Next continues it exactly. What comes into these states after it has begun is passed over: what dies
// or fails again, and what is sent meanwhile (the clock of its sender tells, whose time is in the id).
type Bulk struct {
	// States are those that the messages were in when the call began. None: all in which that can be done; but
	// BulkDelete must be told. Of StateUnack, what is being handled when the call gets there is meant.
	States []State

	Filter // which of them; zero: all. Limit is how many are looked at in one step

	// Spread makes messages due evenly over this time, not all at once; what is due within it already stays.
	// For BulkRequeue, BulkRunNow and BulkReschedule.
	Spread time.Duration

	// Rate is to how many messages a second it is done at most; 0: as fast as the steps go.
	Rate int

	// DryRun counts what would be done and changes nothing. It does not see whether a key is taken. Once it is finished,
	// BulkResult.Plan does later just what was counted.
	DryRun bool

	// Progress is called after each step. The call stops when it returns false, without an error. A panic in it is the
	// caller's; the journal says that the call has stopped. nil: nobody is told.
	Progress func(*BulkResult) bool
}

// A Reason is why a message that matched was passed over.
type Reason string

// The reasons.
const (
	PassedMoved Reason = "moved"     // it had left its state when its turn came: handed out, settled, moved or taken out
	PassedNew   Reason = "new"       // it came into its state after the call had begun, or was not counted by the dry run whose Plan this is
	PassedKey   Reason = "key taken" // another live message has its key, or an acked one keeps it

	// The reply to the step that it was in was lost, and Redis has forgotten after an hour whether that step was
	// done: BulkRescheduleBy passes over what may have been shifted. The other calls look again.
	PassedUnknown Reason = "unknown"
)

// A BulkResult says what became of the messages, those of the calls that this one continues among them.
type BulkResult struct {
	Total  int64            // in these states, and between From and To, when the call began
	Looked int64            // looked at until now; it may end some above or below Total
	Done   int64            // or, with DryRun, what would have been
	Passed map[Reason]int64 // matched, but passed over
	Next   string           // for BulkContinue; "" if it is finished
	Entry  string           // ID of its entry in the journal; "" if it has none, or cannot write there any more

	// At is the server's instant at which it began, of a Plan its dry run: what came in later is passed over.
	At     time.Time        `json:",omitzero"`
	Sample []*MessageStatus `json:",omitempty"` // DryRun: the first of those it would be done to, 10 at most; BulkContinue begins anew
	Plan   string           `json:",omitempty"` // DryRun that is finished: for BulkCommit; "" if it was about too many that are being handled
}

// BulkDelete deletes messages. Of StateUnack, it takes them out and ends their handlers' contexts, as Cancel does.
//
// It returns a result beside an error too: what was done until then, except perhaps in the step that was cut off,
// and Next to go on from there; ErrUnknownLayout if a newer version of this library writes the queue. The same holds
// for the other calls for many.
func (m *Monitor) BulkDelete(ctx context.Context, b Bulk) (*BulkResult, error) {
	return m.bulk(ctx, operation{What: steerDelete}, b, StatePending, StateReady, StateUnack, StateRetry, StateGarbage, StateDone)
}

// BulkRequeue brings messages back from garbage, due now, with all their retries; see Requeue. One whose key
// another message holds is passed over.
func (m *Monitor) BulkRequeue(ctx context.Context, b Bulk) (*BulkResult, error) {
	return m.bulk(ctx, operation{What: steerRequeue}, b, StateGarbage)
}

// BulkRunNow makes messages due now that are not yet.
func (m *Monitor) BulkRunNow(ctx context.Context, b Bulk) (*BulkResult, error) {
	return m.bulk(ctx, operation{What: steerAt}, b, StatePending, StateRetry)
}

// BulkReschedule makes messages due at t; see Reschedule.
func (m *Monitor) BulkReschedule(ctx context.Context, b Bulk, t time.Time) (*BulkResult, error) {
	w, err := scheduled(t)
	if err != nil {
		return &BulkResult{}, m.failed(err, "reschedule")
	}
	return m.bulk(ctx, operation{What: steerAt, Us: w.us}, b, StatePending, StateReady, StateRetry)
}

// BulkRescheduleBy makes messages due so much later or (if negative) earlier than they are; see RescheduleBy.
func (m *Monitor) BulkRescheduleBy(ctx context.Context, b Bulk, d time.Duration) (*BulkResult, error) {
	if err := validDelay("shift", d); err != nil {
		return &BulkResult{}, m.failed(err, "reschedule")
	}
	return m.bulk(ctx, operation{What: steerBy, Us: d.Microseconds()}, b, StatePending, StateReady, StateRetry)
}

// bulk begins.
func (m *Monitor) bulk(ctx context.Context, o operation, b Bulk, can ...State) (*BulkResult, error) {
	o.Queue, o.Caller = m.store.keys.state, newCaller().id
	o.States, o.Filter, o.Dry, o.Spread, o.Rate = b.States, cold(b.Filter), b.DryRun, b.Spread.Microseconds(), b.Rate
	ctx, cancel := o.untilDone(ctx)
	defer cancel()
	err := o.valid(&b, can)
	if err == nil {
		err = m.begin(ctx, &o)
	}
	if err != nil {
		return &BulkResult{}, m.failed(err, "%s", verbs[o.What])
	}
	return m.operate(ctx, &o, b.Progress)
}

// untilDone is the context of a call for many. What it reads to change something is tried as long as the changes are, and not for
// readFor.
func (o *operation) untilDone(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded || o.Dry {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, maxDelay)
}

func (o *operation) valid(b *Bulk, can []State) error {
	if len(o.States) == 0 && o.What == steerDelete {
		return fmt.Errorf("%w: Bulk.States: say of which states", ErrBadOption)
	}
	if len(o.States) == 0 {
		o.States = can
	}
	for _, s := range o.States {
		if !slices.Contains(can, s) {
			return fmt.Errorf("%w: Bulk.States: that cannot be done to what is %s", ErrBadOption, s)
		}
	}
	if err := unitless("Bulk.Spread", b.Spread); err != nil {
		return err
	}
	if o.Rate < 0 {
		return fmt.Errorf("%w: Bulk.Rate %d", ErrBadOption, o.Rate)
	}
	if o.Spread != 0 && (o.Spread < 0 || o.What == steerBy || o.What == steerDelete || o.Spread > maxDelay.Microseconds()) {
		return fmt.Errorf("%w: Bulk.Spread %v", ErrBadOption, time.Duration(o.Spread)*time.Microsecond)
	}
	return nil
}

// begin fixes the instant that bounds what is touched, and counts it. Each step's call looks at the layout once more.
func (m *Monitor) begin(ctx context.Context, o *operation) error {
	o.Sent = time.Now().UnixMicro()
	queue, err := m.counts(ctx)
	if err == nil {
		err = checkLayout(queue.layout)
	}
	if err != nil {
		return err
	}
	o.Begun, o.Sent = queue.now, max(o.Sent, queue.now)
	var ends []int64
	for _, p := range o.places() {
		p.back = p.in != StateReady
		got, err := m.list(ctx, p, 1, spot{}) // the last one
		if err != nil {
			return err
		}
		ends = append(ends, endOf(&got))
		o.Left = append(o.Left, got.left)
		o.Result.Total += int64(got.left)
	}
	o.Ends = ends
	return nil
}

// endOf is the score at which a place ended.
func endOf(got *listReply) int64 {
	if len(got.entries) == 0 {
		return math.MinInt64
	}
	return scoreInstant(got.entries[0].score)
}

// operate goes on until all is done, or it is stopped.
func (m *Monitor) operate(ctx context.Context, o *operation, progress func(*BulkResult) bool) (r *BulkResult, err error) {
	places := o.places()
	if err := m.enter(ctx, o); err != nil {
		return o.cutOff(places, err), m.failed(err, "%s", verbs[o.What])
	}
	defer func() {
		if r == nil { // Progress panicked, or ended this goroutine, and that goes on: the call has stopped, and can be continued
			r = o.result(places)
		}
		r, err = m.leave(ctx, o, r, err)
	}()
	err = m.settleDoubt(ctx, o, places)
	if err == nil {
		err = m.goesOn(ctx, o)
	}
	if err != nil {
		return o.cutOff(places, err), m.failed(err, "%s", verbs[o.What])
	}
	for o.Place < len(places) {
		if o.Frozen && o.room() == 0 {
			o.position = position{Place: len(places)}
			break
		}
		begun := time.Now()
		n, err := m.step(ctx, o, places[o.Place])
		if err == nil && o.Place < len(places) {
			err = m.heard(ctx, o)
		}
		if err != nil {
			return o.cutOff(places, err), m.failed(err, "%s", verbs[o.What])
		}
		rest := restAfter(begun)
		if next := begun.Add(o.pace(n)); next.After(rest) {
			rest = next
		}
		if progress != nil && !progress(o.result(places)) {
			break
		}
		if o.Place < len(places) {
			sleep(ctx, time.Until(rest))
		}
	}
	return o.result(places), nil
}

// readyWork bounds what one step costs in ready, where each message costs as much as the list is long.
const readyWork = 100_000

// step looks at one page and does to it what is to be done, to n messages.
func (m *Monitor) step(ctx context.Context, o *operation, p place) (n int, err error) {
	limit, ready := o.Filter.hot().limit(), p.in == StateReady
	if ready {
		limit = max(1, min(limit, readyWork/max(o.Left[o.Place], 1)))
	}
	got, err := m.list(ctx, p, limit, o.spot())
	if err != nil {
		return 0, err
	}
	targets, passed := o.wanted(&got, p)
	if passed > 0 {
		o.pass(PassedNew, passed)
	}
	gone := map[string]bool{} // tags that have left
	if o.Dry {
		o.Result.Done += int64(len(targets))
	} else if len(targets) > 0 {
		do := o.request(p, targets, len(got.entries))
		o.N++
		after := *o // as it is if this goes well
		after.moveOn(&got, p, false, nil)
		o.Doubt = &doubt{after.position, after.InPlace, after.Result.Looked, got.now, int64(len(targets)), passed}
		if err := m.ahead(ctx, o); err != nil {
			o.N, o.Doubt = o.N-1, nil
			o.pass(PassedNew, -passed)
			return 0, err
		}
		done, err := m.steerAs(ctx, o, do)
		if err != nil {
			return 0, err
		}
		o.Doubt = nil
		before := o.Result.Done
		for i, d := range done {
			gone[targets[i].tag] = o.count(d)
		}
		if n := o.Result.Done - before; n > 0 { // an event a step, without ids: they may be thousands
			m.tell(acts[o.What], int(n))
		}
	}
	o.moveOn(&got, p, ready, gone)
	return len(targets), nil
}

// moveOn notes where the next page begins.
func (o *operation) moveOn(got *listReply, p place, ready bool, gone map[string]bool) {
	o.Result.Looked += int64(len(got.entries))
	o.InPlace += len(got.entries)
	if !got.more() || len(got.entries) == 0 || o.over(got, p, ready) {
		o.position, o.InPlace = position{Place: o.Place + 1}, 0
		return
	}
	for _, e := range slices.Backward(got.entries) {
		if !ready || !gone[e.tag] { // ready has no scores: the last one that stays says where that was
			o.Score, o.Tag = e.score, []byte(e.tag)
			return
		}
	}
}

// over says whether a place was gone through although there is more in it: what comes in behind the end is not looked at, however
// fast it comes. New ones come in behind the end of ready, and leases that are renewed go to the end of unack. Elsewhere what was
// there may have been put behind what was the end; so it is looked for until a page has none of it.
func (o *operation) over(got *listReply, p place, ready bool) bool {
	many := o.InPlace > 2*o.Left[o.Place]+1000
	if ready || p.state == StateUnack {
		return many
	}
	last := got.entries[len(got.entries)-1]
	if p.back || scoreInstant(last.score) <= o.Ends[o.Place] {
		return false
	}
	return many || !slices.ContainsFunc(got.entries, func(e entry) bool { return e.msg != nil && !o.isNew(e.msg, p, got.now) })
}
