package ops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A Bulk says which messages a call for many changes, and how.
//
// A call for many changes the messages that were in these states when it began, each of them once. It works in steps
// that hold the server for milliseconds, with pauses as long as the steps took. It passes over messages that come
// into these states later: those that fail or die again, and those that are sent meanwhile. The time of a send is in
// the id, by the clock of the sender. It also passes over a message that another send changes (Replace, Append) after
// the call has found that it matches. Exceptions:
//   - In StateUnack without Before, messages that are handed out after the call began are changed, too.
//   - If the call takes a message with a turn out of its lane (WithLane), or makes it due later, the next of the lane
//     comes into its state and may be changed, too, although States has no StateWaiting.
//   - A call may miss a message that gets or loses its turn meanwhile, because handlers end or a message before it is
//     sent. Therefore a call that makes messages due earlier goes through the messages with a lane twice. If a call
//     other than BulkRescheduleBy is made again, it changes what was missed.
//
// If the queue has several shards, a call goes through one after the other. It begins at the latest instant of their
// clocks. If some shards do not answer, the call does the others, and ends with an ErrMissingShards, as a call that
// was cut off, unless the others had Most. Of a queue with one shard, it waits for Redis until its context ends.
//
// A call remembers which messages with a lane (WithLane) it has changed or counted, in about 100 bytes for each of
// them.
//
// A dry run counts first. The same call with Before set to its BulkResult.At, and Most to its Done, changes what was
// counted and nothing that came later. If nothing was counted, there is nothing to call for: Most 0 is any number.
//
// A call may be cut off between or within its steps. The same call with Before set to BulkResult.At does the rest,
// because messages that were changed have left their state, or are as they should be. Only BulkRescheduleBy would
// shift messages twice. That call does the rest with Cursor set to BulkResult.Next.
//
// If a BulkRescheduleBy ends with an ErrMissingShards, it has shifted what the other shards hold, and nothing in the
// missing ones, or not all there if they fell silent when it had come to them. No call does that rest: the same call
// would shift the others again, and a Cursor leaves the missing shards out. BulkReschedule, to an instant, can be
// repeated.
type Bulk struct {
	// States are those that the messages were in when the call began. None: all in which the change is possible; but
	// BulkDelete needs them. In StateUnack, only messages that are being handled when the call reaches them are changed.
	States []delayqueue.State

	Filter // which of them; zero: all. Limit is how many messages are looked at in one step

	// Spread makes messages due evenly over this time, not all at once; those of each shard over the whole time.
	// Messages that are due within it already stay. For BulkRequeue, BulkRunNow and BulkReschedule.
	Spread time.Duration

	// Anew lifts the deadlines of messages that would have expired when they are due, for good, and begins their TTLs
	// anew. Otherwise such messages are passed over (PassedExpired), because they would come to no handler.
	Anew bool

	// Rate is how many messages are changed in a second at most. 0: as fast as the steps go.
	Rate int

	// DryRun counts the messages that would be changed, and changes none. It does not see whether a key is taken or a
	// TTL is over.
	DryRun bool

	// Before is an instant of the server's clock. Messages that came into their state later are passed over. A message
	// in StateUnack came later if it was sent, or failed last, after Before. Zero, or an instant to come: when the call
	// begins.
	Before time.Time

	// Most is how many messages are changed at most. 0: any number.
	Most int64

	// Cursor is the Next of a dry run or of a BulkRescheduleBy that was cut off. The call goes on from there, if all else
	// is as it was, a dry run included. Shards that did not answer before stay left out, unless all were silent in the
	// end. BulkRescheduleBy may then shift a message again whose turn in its lane has begun or ended meanwhile, and if it
	// makes messages due earlier, miss one whose turn has begun, although it says Finished.
	// "": the call begins.
	Cursor string

	// Progress is called after each step. If it returns false, the call stops without an error. A panic in Progress
	// reaches the caller, and the journal says that the call has stopped. nil: nobody is told.
	Progress func(*BulkResult) bool
}

// A Reason is why a message that matches was passed over.
type Reason string

// The reasons.
const (
	// the message had left its state when its turn came, or had been changed by another send
	PassedMoved Reason = "moved"
	PassedNew   Reason = "new"       // the message came into its state after the call had begun, or after Bulk.Before
	PassedKey   Reason = "key taken" // another live message has the key, or an acked message holds it

	PassedExpired Reason = "expired" // the message would have expired when it is due, and Bulk.Anew is not set
)

// A BulkResult says how far a call for many has come.
type BulkResult struct {
	Total int64 // messages in these states, and between From and To, when the call began
	// messages looked at until now; messages that come and go meanwhile make it differ from Total in the end
	Looked int64
	Done   int64            // messages changed, or counted by a dry run, with those before Bulk.Cursor
	Passed map[Reason]int64 // messages that match but were passed over
	Entry  string           // ID of the entry in the journal; "" if there is none, or if it can no longer be written

	// ByState is Done by the state in which the messages were. Those that were due when the call began are in StateReady.
	ByState map[delayqueue.State]int64 `json:",omitempty"`

	// At is when the call began, by the server's clock, or Bulk.Before. Messages that came in later are passed over.
	At       time.Time `json:",omitzero"`
	Finished bool      // all was looked at, in all shards, or Bulk.Most were changed

	// Next is for Bulk.Cursor, of a dry run or of BulkRescheduleBy. "": nothing is left to do in the shards that answer,
	// or it is not known whether the step that was cut off has shifted its messages.
	Next   string           `json:",omitempty"`
	Sample []*MessageStatus `json:",omitempty"` // of a dry run: the first 10 messages at most that this call has counted
}

// BulkDelete deletes messages. In StateUnack it takes them out and ends the contexts of their handlers, as Cancel does.
//
// Like all calls for many, it returns a result beside an error: how far it had come, perhaps without the step that
// was cut off. It returns ErrUnknownLayout if a newer version of this library writes the queue, and ErrBulkStopped
// after StopBulk.
func (m *Queue) BulkDelete(ctx context.Context, b Bulk) (*BulkResult, error) {
	return m.bulk(ctx, task{What: script.SteerDelete}, b, delayqueue.StatePending, delayqueue.StateReady,
		delayqueue.StateWaiting,
		delayqueue.StateUnack, delayqueue.StateRetry, delayqueue.StateGarbage, delayqueue.StateDone)
}

// BulkRequeue brings messages back from garbage, due now, with all their retries; see Requeue. Messages whose key
// another message has, and messages past their deadline, are passed over.
func (m *Queue) BulkRequeue(ctx context.Context, b Bulk) (*BulkResult, error) {
	return m.bulk(ctx, task{What: script.SteerRequeue}, b, delayqueue.StateGarbage)
}

// BulkRunNow makes messages due now that would be due later.
func (m *Queue) BulkRunNow(ctx context.Context, b Bulk) (*BulkResult, error) {
	return m.bulk(ctx, task{What: script.SteerAt}, b, delayqueue.StatePending, delayqueue.StateWaiting,
		delayqueue.StateRetry)
}

// BulkReschedule makes messages due at t; see Reschedule.
func (m *Queue) BulkReschedule(ctx context.Context, b Bulk, t time.Time) (*BulkResult, error) {
	w, err := message.Scheduled(t)
	if err != nil {
		return &BulkResult{}, m.failed(err, "reschedule")
	}
	return m.bulk(ctx, task{What: script.SteerAt, Us: w.Us}, b, delayqueue.StatePending, delayqueue.StateReady,
		delayqueue.StateWaiting,
		delayqueue.StateRetry)
}

// BulkRescheduleBy makes messages due later by d, or earlier if d is negative; see RescheduleBy.
func (m *Queue) BulkRescheduleBy(ctx context.Context, b Bulk, d time.Duration) (*BulkResult, error) {
	if err := message.ValidDelay("shift", d); err != nil {
		return &BulkResult{}, m.failed(err, "reschedule")
	}
	return m.bulk(ctx, task{What: script.SteerBy, Us: d.Microseconds()}, b, delayqueue.StatePending, delayqueue.StateReady,
		delayqueue.StateWaiting, delayqueue.StateRetry)
}

// bulk begins a call for many, or goes on with a dry run, and carries it out.
func (m *Queue) bulk(ctx context.Context, t task, b Bulk, can ...delayqueue.State) (*BulkResult, error) {
	t.States, t.Filter, t.Spread, t.Rate, t.Most = b.States, cold(b.Filter), b.Spread.Microseconds(), b.Rate, b.Most
	t.Anew = b.Anew || m.anew
	o := operation{task: t, dry: b.DryRun, caller: script.NewCaller().ID, met: map[string]bool{}}
	ctx, cancel := o.untilDone(ctx)
	defer cancel()
	err := o.valid(&b, can)
	if err == nil {
		o.of, err = m.store.Look(ctx)
	}
	if err == nil {
		o.Of = o.digest(m.store.Keys.State)
	}
	if err == nil && b.Cursor != "" {
		err, o.resumed = o.countOn(b.Cursor), true
	} else if err == nil {
		err = m.begin(ctx, &o, b.Before)
	}
	if err != nil {
		return &BulkResult{}, m.failed(err, "%s", verbs[o.What])
	}
	return m.operate(ctx, &o, b.Progress)
}

// untilDone is the context of a call for many. Its reads are tried as long as its changes, and not only for ReadFor,
// unless it is a dry run.
func (o *operation) untilDone(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded || o.dry {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, message.MaxDelay)
}

func (o *operation) valid(b *Bulk, can []delayqueue.State) error {
	if len(o.States) == 0 && o.What == script.SteerDelete {
		return fmt.Errorf("%w: Bulk.States: which states?", delayqueue.ErrBadOption)
	}
	if len(o.States) == 0 {
		o.States = can
	}
	for _, s := range o.States {
		if !slices.Contains(can, s) {
			return fmt.Errorf("%w: Bulk.States: that cannot be done to messages that are %s", delayqueue.ErrBadOption, s)
		}
	}
	if err := message.Unitless("Bulk.Spread", b.Spread); err != nil {
		return err
	}
	if b.Cursor != "" && !b.DryRun && o.What != script.SteerBy {
		return fmt.Errorf("%w: Bulk.Cursor: only a dry run and BulkRescheduleBy go on", delayqueue.ErrBadOption)
	}
	if o.Rate < 0 || o.Most < 0 {
		return fmt.Errorf("%w: Bulk.Rate %d, Bulk.Most %d: less than 0", delayqueue.ErrBadOption, o.Rate, o.Most)
	}
	if o.Spread != 0 && (o.Spread < 0 || o.What == script.SteerBy || o.What == script.SteerDelete ||
		o.Spread > message.MaxDelay.Microseconds()) {
		return fmt.Errorf("%w: Bulk.Spread %v", delayqueue.ErrBadOption, time.Duration(o.Spread)*time.Microsecond)
	}
	return nil
}

// begin fixes the instant that bounds the call, and counts the messages. The script of each step checks the layout
// again.
func (m *Queue) begin(ctx context.Context, o *operation, before time.Time) error {
	o.Sent = time.Now().UnixMicro()
	queue, err := m.store.ReadCounts(ctx)
	if missing := new(shard.MissingError); errors.As(err, &missing) {
		for _, i := range missing.Missing {
			o.Leave(i-1, missing.Err)
		}
		err = nil
	}
	if err == nil {
		err = script.CheckLayout(queue.Layout)
	}
	if err != nil {
		return err
	}
	o.Now, o.Begun, o.Sent = queue.Now, queue.Now, max(o.Sent, queue.Now)
	if !before.IsZero() && before.UnixMicro() < queue.Now {
		o.Begun, o.Sent = before.UnixMicro(), before.UnixMicro()
	}
	for _, p := range o.places() {
		p.back = p.in != delayqueue.StateReady
		got, err := m.list(ctx, p, 1, script.Spot{}, &o.Absence) // the last message
		if err != nil {
			return err
		}
		end := int64(math.MinInt64)
		if len(got.entries) > 0 {
			end = script.ScoreInstant(got.entries[0].Score)
		}
		o.Ends = append(o.Ends, end)
		o.Left = append(o.Left, got.left)
		if !p.again {
			o.Result.Total += int64(got.left)
		}
	}
	return nil
}

// operate goes on until all is done, or until the call is stopped.
func (m *Queue) operate(ctx context.Context, o *operation, progress func(*BulkResult) bool) (r *BulkResult, err error) {
	places := o.places()
	o.who, o.entry.Token = m.who, newToken()
	if err := m.noteBulk(ctx, o, journal.Running, nil); err != nil {
		return o.result(places), m.failed(err, "%s", verbs[o.What])
	}
	defer func() { // also if Progress panicked or ended this goroutine: then the call has stopped
		m.leave(ctx, o, o.Place >= len(places), err)
	}()
	o.leaveOut(places)
	whole, sample, called := o.copy(), o.sample, o.n // before a shard was left out, and nothing was changed since
	for o.Place < len(places) {
		if len(o.Out) == len(whole.Out) || o.n > called {
			whole, sample, called = o.copy(), o.sample, o.n
		}
		begun := time.Now()
		n, err := m.step(ctx, o, places[o.Place])
		if err != nil && ctx.Err() == nil && len(o.Out) == len(o.of.All) { // no shard is left
			o.reach, o.sample = whole, sample
		}
		if o.leaveOut(places); o.full() {
			o.position = position{Place: len(places)}
		}
		if err == nil && o.Place < len(places) && time.Since(o.noted) >= time.Second { // without a change that was noted
			err = m.noteBulk(ctx, o, journal.Running, nil)
		}
		if err != nil {
			return o.result(places), m.failed(err, "%s", verbs[o.What])
		}
		rest := restAfter(begun)
		if next := begun.Add(o.pace(n)); next.After(rest) {
			rest = next
		}
		if progress != nil && !progress(o.result(places)) {
			break
		}
		if o.Place < len(places) {
			link.Sleep(ctx, time.Until(rest))
		}
	}
	if o.Place >= len(places) && o.Result.Looked < o.Result.Total { // perhaps because the queue has vanished
		err = m.there(ctx)
	}
	if err == nil && !o.full() {
		err = o.Err(len(o.of.All), o.did())
	}
	return o.result(places), m.failed(err, "%s", verbs[o.What])
}

// readyWork bounds the cost of one step in ready, because each message there costs as much as the list is long.
const readyWork = 100_000

// step looks at one page, and changes n messages of it.
func (m *Queue) step(ctx context.Context, o *operation, p place) (n int, err error) {
	limit, ready := o.Filter.hot().limit(), p.in == delayqueue.StateReady
	if ready {
		limit = max(1, min(limit, readyWork/max(o.Left[o.Place], 1)))
	}
	got, err := m.list(ctx, p, limit, o.spot(), &o.Absence)
	if err != nil {
		return 0, err
	}
	targets, passed := o.wanted(&got, p)
	gone := map[string]bool{} // tags of messages that have left the place
	if o.dry {
		for _, e := range targets {
			o.done(e, p)
			o.meet(e)
		}
	} else if len(targets) > 0 {
		if err := m.noteBulk(ctx, o, journal.Running, nil); err != nil {
			return 0, err
		}
		do := o.request(p, targets, len(got.entries))
		done, err := m.steerAs(ctx, o, p, do)
		if err != nil { // if the shard is left out, the next step moves on
			return 0, p.leaveOut(ctx, p.shard, err, &o.Absence)
		}
		if len(done) < len(targets) { // the next step does the rest
			got.entries = got.entries[:slices.Index(got.entries, targets[len(done)])]
			targets, passed = o.wanted(&got, p)
		}
		o.known = o.n
		before := o.Result.Done
		o.spreadTo += int64(len(done)) * do.Step
		for i, d := range done {
			gone[targets[i].Tag] = o.count(d, targets[i], p)
			if d.Done || d.Expired {
				o.meet(targets[i])
			}
		}
		if n := o.Result.Done - before; n > 0 { // an event a step, without the ids, of which there may be thousands
			m.tell(acts[o.What], int(n))
		}
	}
	if passed > 0 {
		o.pass(PassedNew, passed)
	}
	if p.again {
		o.Result.Looked += int64(len(targets))
	} else {
		o.Result.Looked += int64(len(got.entries))
	}
	o.moveOn(&got, p, ready, gone)
	return len(targets), nil
}

// steerAs makes the operation's next call, again and again until Redis answers or ctx ends, or until a shard has had
// its time.
func (m *Queue) steerAs(ctx context.Context, o *operation, p place,
	do script.SteerRequest) (done []script.Steered, err error) {
	o.n++
	return shard.One(ctx, p.of.All[p.shard], func(ctx context.Context, s *script.Store) ([]script.Steered, error) {
		err := link.Repeat(ctx, func() error {
			done, err = s.Steer(ctx, &script.Caller{ID: o.caller, N: o.n}, do)
			return err
		})
		return done, err
	})
}

// moveOn notes where the next page begins.
func (o *operation) moveOn(got *listReply, p place, ready bool, gone map[string]bool) {
	o.InPlace += len(got.entries)
	if !got.more() || len(got.entries) == 0 || o.over(got, p, ready) {
		o.nextPlace(o.places())
		return
	}
	for _, e := range slices.Backward(got.entries) {
		if !ready || !gone[e.Tag] { // ready has no scores: the last message that stays marks the place
			o.Score, o.Tag = e.Next.Score, []byte(e.Next.Tag)
			return
		}
	}
}

// over says whether the call is through with a place although more follows there. Messages that come in behind the
// end are not looked at, however fast they come. In ready new messages come in behind the end. What is held has an
// order that ends by itself. In the other places a message that was there may have moved behind the end, so the call
// goes on until a page has no such message.
func (o *operation) over(got *listReply, p place, ready bool) bool {
	many := o.InPlace > 2*o.Left[o.Place]+1000
	if !p.ordered() {
		return ready && many
	}
	last := got.entries[len(got.entries)-1]
	if p.back || script.ScoreInstant(last.Score) <= o.Ends[o.Place] {
		return false
	}
	return many ||
		!slices.ContainsFunc(got.entries, func(e entry) bool { return e.msg != nil && !o.isNew(e.msg, p, got.now) })
}
