package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"
)

// frozen is what ties a call for many to the dry run whose plan it is.
type frozen struct {
	Planned   bool   `json:"plan,omitempty"`    // it is a plan, and not begun
	Frozen    bool   `json:"frozen,omitempty"`  // it is of a plan
	Counted   int64  `json:"counted,omitempty"` // the most that may be done
	Committed int64  `json:"from,omitempty"`    // us of the server, when it was begun
	Names     []byte `json:"names,omitempty"`   // of a dry run or its plan: what was counted, 8 bytes a message; none if too many
	TooMany   bool   `json:"many,omitempty"`    // they were
}

const (
	maxSample = 10
	maxNames  = 1000
	nameBytes = 8
)

// digest tells one delivery from others.
func digest(tag string) []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tag))
	return h.Sum(nil)
}

// note keeps what a dry run has counted.
func (o *operation) note(e entry) {
	if len(o.sample) < maxSample {
		o.sample = append(o.sample, e.msg)
	}
	if o.TooMany = o.TooMany || len(o.Names) >= maxNames*nameBytes; o.TooMany {
		o.Names = nil
	} else {
		o.Names = append(o.Names, digest(e.tag)...)
	}
}

// counted says whether a message may be one that the dry run has counted.
func (o *operation) counted(tag string) bool {
	if !o.Frozen || o.TooMany {
		return true
	}
	if o.names == nil {
		o.names = map[string]bool{}
		for name := range slices.Chunk(o.Names, nameBytes) {
			o.names[string(name)] = true
		}
	}
	return o.names[string(digest(tag))]
}

// plan is the operation that does what this dry run has counted; "" if that cannot be frozen: nothing tells whether what is
// being handled was so then.
func (o *operation) plan() string {
	if o.TooMany && slices.Contains(o.States, StateUnack) {
		return ""
	}
	p := *o
	p.Dry, p.Planned, p.Frozen, p.Counted = false, true, true, o.Result.Done
	p.position, p.InPlace, p.Result = position{}, 0, BulkResult{Total: o.Result.Total}
	text, _ := cursorOf(&p) // there is nothing in it that cannot be written
	return text
}

// room is to how many messages the next step may do it; -1: any number.
func (o *operation) room() int {
	most := -1
	if o.Frozen { // those whose fate is unknown may be done
		most = int(max(o.Counted-o.Result.Done-o.Result.Passed[PassedUnknown], 0))
	}
	if o.Rate > 0 && !o.Dry && (most < 0 || o.Rate < most) {
		most = o.Rate
	}
	return most
}

// pace is how long n messages take at the rate that was asked for.
func (o *operation) pace(n int) time.Duration {
	if o.Rate == 0 || o.Dry {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(o.Rate)
}

// ErrPlanOver: a BulkResult.Plan was made too long ago, or was begun before: count again.
var ErrPlanOver = errors.New("this plan is over: count again")

// BulkCommit does what a dry run has counted; plan is the Plan of its result, and holds all else that the dry run was told. It touches
// no more messages than were counted, each of which was there at BulkResult.At, was not handed out since, and matches still. Of
// up to 1,000 it knows which were counted; of more, one may take the place of another that a sender replaced or a person moved since. It
// can be begun once, within 55 minutes; else it returns ErrPlanOver. BulkContinue goes on with the Next of its
// last result. See Bulk for progress.
func (m *Monitor) BulkCommit(ctx context.Context, plan string, progress func(*BulkResult) bool) (*BulkResult, error) {
	o, err := m.readOperation(plan)
	if err == nil && !o.Planned {
		err = fmt.Errorf("%w %q", ErrBadCursor, plan)
	}
	if err == nil { // who has made it up may claim nothing else in it
		o.position, o.InPlace, o.Doubt, o.Result, o.Entry, o.Claim = position{}, 0, nil, BulkResult{}, entryName{}, ""
		for _, n := range o.Left {
			o.Result.Total += int64(n)
		}
		err = m.claim(ctx, o)
	}
	if err != nil {
		return &BulkResult{}, m.failed(err, "commit")
	}
	ctx, cancel := o.untilDone(ctx)
	defer cancel()
	return m.operate(ctx, o, progress)
}

// claim begins a plan, unless somebody else has.
func (m *Monitor) claim(ctx context.Context, o *operation) error {
	o.Planned, o.N = false, 1
	c, word, now := &caller{id: o.Caller, n: o.N}, newCaller().id, int64(0)
	whose := ""
	err := repeat(ctx, math.MaxInt, func() (err error) {
		now, whose, err = m.store.claim(ctx, c, max(o.Begun, 1), word)
		return err
	})
	if stale(err) || err == nil && whose != word {
		err = fmt.Errorf("%w: it is an hour old, or was begun", ErrPlanOver)
	}
	o.Committed = now
	return err
}

// claim makes a call that says whose this caller's work is, and returns the word of who made it first. counted is the instant of the
// server at which that was counted, less than 55 minutes ago; 0: at any time.
func (s *store) claim(ctx context.Context, c *caller, counted int64, word string) (now int64, whose string, err error) {
	r := s.run(ctx, steerScript, append(c.args(6), "claim", counted, 0, "claim", word, ""))
	now, whose = r.int64(), r.text()
	return now, whose, r.err("steer")
}

// readOperation reads a Next or a Plan. Of a dry run there is no plan, and no step in doubt:
// that would be asked for by a call that writes.
func (m *Monitor) readOperation(text string) (*operation, error) {
	o := &operation{}
	if err := readCursor(text, o); err != nil {
		return nil, err
	}
	if o.Queue != m.store.keys.state || !o.possible() {
		return nil, fmt.Errorf("%w %q", ErrBadCursor, text)
	}
	return o, nil
}

// possible says whether it may be one that was begun here, not one that somebody has made up.
func (o *operation) possible() bool {
	if verbs[o.What] == "" || o.Rate < 0 || o.Dry && o.Planned || len(o.States) > len(stateNames) {
		return false
	}
	if o.Doubt != nil && (o.Dry || o.Doubt.At.Place < 0) {
		return false
	}
	places := len(o.places())
	return o.Place >= 0 && o.Place <= places && len(o.Left) == places && len(o.Ends) == places
}

// A BulkTask is what a Plan or a Next is about, for who wants to know before it is carried out.
type BulkTask struct {
	Action  string        // "delete", "requeue", "run now", "reschedule" or "reschedule by"
	States  []State       // as Bulk.States
	Filter  Filter        // as Bulk.Filter
	To      time.Time     // reschedule: until when
	By      time.Duration // reschedule by: how much later
	Spread  time.Duration // as Bulk.Spread
	Rate    int           // as Bulk.Rate: messages a second; 0: as fast as the steps go
	DryRun  bool          // as Bulk.DryRun
	Planned bool          // it is a Plan
	At      time.Time     // as BulkResult.At
	Total   int64         // as BulkResult.Total
	Counted int64         // of a Plan, begun or not: the most that is done
	Looked  int64         // as BulkResult.Looked
	Done    int64         // as BulkResult.Done
}

// BulkTask reads a Plan or a Next of this queue, of whatever age; else it returns ErrBadCursor.
func (m *Monitor) BulkTask(token string) (*BulkTask, error) {
	o, err := m.readOperation(token)
	if err != nil {
		return nil, m.failed(err, "read a task")
	}
	t := &BulkTask{
		Action: verbs[o.What], States: o.States, Filter: *o.Filter.hot(), Spread: microseconds(o.Spread), Rate: o.Rate, DryRun: o.Dry,
		Planned: o.Planned, At: instantTime(o.Begun), Total: o.Result.Total, Counted: o.Counted, Looked: o.Result.Looked, Done: o.Result.Done,
	}
	switch {
	case o.What == steerBy:
		t.Action, t.By = "reschedule by", microseconds(o.Us)
	case o.What == steerAt && o.Us == 0:
		t.Action = "run now"
	case o.What == steerAt:
		t.To = instantTime(o.Us)
	}
	return t, nil
}
