package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A Lane says what a lane is doing (WithLane): which messages have a turn, so that they may be handled, and how many
// wait behind them.
type Lane struct {
	Name string // as given to WithLane
	// how many messages may have a turn: the smallest of the widths of those that have one, and of the next
	Width   int
	Turns   int64     // how many messages have a turn
	Waiting int64     // how many wait for one, due or not
	Since   time.Time // when the first of these was due, or will be; zero: none waits
	Holders []Holder  // the messages that have a turn, in no order; Lanes reads one of each lane
}

// Blocked says whether a message that is due waits for a turn. now is the server's instant of the page.
func (l *Lane) Blocked(now time.Time) bool { return l.Waiting > 0 && !l.Since.After(now) }

// A Holder is a message that has a turn in its lane.
type Holder struct {
	ID    string // of the message
	State delayqueue.State

	// At is when the message will be due (StatePending, StateRetry), since when it is ready (StateReady), or when its
	// handler began (StateUnack). In StateUnack it is zero if no consumer has said so yet, or if the message is in a
	// consumer's buffer.
	At        time.Time
	Delivery  int    // the number of the next delivery, or of the current one
	LastError string // why the delivery before ended; "" if there is none
	Consumer  string // in StateUnack: the ID of the Consumer that handles the message; "" if that is not known
}

// A LanePage is what a call of Lanes has found.
type LanePage struct {
	Lanes  []Lane    // those in which most messages wait, the most first; at most 1,000
	Others int64     // how many further lanes there are
	Next   string    // the cursor of the next call; "" if all were looked at
	Now    time.Time // by the server's clock
}

const (
	lanePage = 50 // lanes that one call of the script reads
	maxLanes = 1000
)

// Lanes looks at budget lanes (0: 10,000; at most 100,000), and returns those in which most messages wait. It does so
// page by page. A pause follows each page, as long as the page took. cursor is "" for the first call, and then the
// Next of the call before. Merge puts the lanes of these calls together. Beside an error Lanes returns what was found
// until then, and Next. List says what if some shards do not answer.
func (m *Queue) Lanes(ctx context.Context, budget int, cursor string) (*LanePage, error) {
	page := &LanePage{Next: cursor}
	err := m.lanePages(ctx, page, min(cmp.Or(max(budget, 0), 10_000), 100_000))
	if err == nil && len(page.Lanes) == 0 && cursor == "" {
		err = m.there(ctx)
	}
	if err == nil || partly(err) != "" {
		err = cmp.Or(err, m.holders(ctx, page.Lanes))
	}
	return page, m.failed(err, "lanes")
}

// lanePages reads so many lanes into a page, from page.Next on.
func (m *Queue) lanePages(ctx context.Context, page *LanePage, budget int) error {
	var at laneCursor
	if page.Next != "" {
		if err := readCursor(page.Next, &at); err != nil {
			return err
		}
	}
	for budget > 0 {
		begun := time.Now()
		n := min(budget, lanePage)
		got, err := m.readLanes(ctx, script.LanesRequest{After: string(at.After), Limit: n})
		if missing := new(shard.MissingError); errors.As(err, &missing) {
			at.Leave(missing.Missing[0]-1, missing.Err)
		} else if err != nil {
			return err
		}
		rest := restAfter(begun)
		for i := range got.Lanes {
			page.Lanes = append(page.Lanes, laneOf(&got.Lanes[i]))
		}
		page.trim()
		if page.Next = ""; err == nil {
			page.Now = message.InstantTime(got.Now)
		}
		if got.Last == "" {
			break
		}
		at.After = []byte(got.Last)
		page.Next, _ = cursorOf(&at) // there is nothing in it that cannot be written
		if budget -= n; budget > 0 {
			link.Sleep(ctx, time.Until(rest))
		}
	}
	return at.Err(len(m.store.Known().All), "")
}

// A laneCursor is behind a lane. Its name is bytes, because JSON would change a string that is not UTF-8.
type laneCursor struct {
	After []byte `json:"a"`
	shard.Absence
}

func (m *Queue) readLanes(ctx context.Context, q script.LanesRequest) (script.LanesReply, error) {
	return m.store.Lanes(ctx, q)
}

// laneOf makes a Lane of a reply.
func laneOf(r *script.LaneReply) Lane {
	l := Lane{Name: r.Name, Width: r.Width, Turns: r.Turns, Waiting: r.Waiting, Since: message.InstantTime(r.Due)}
	for _, one := range r.First {
		s := statusOf(one.ID, stateAs(one.State), one.At, "", one.Record)
		h := Holder{ID: one.ID, State: s.State, At: s.At, Delivery: s.Delivery, LastError: s.LastError}
		if h.State == delayqueue.StateReady && h.At.IsZero() { // the record says since when the message is there
			h.At = s.EndedAt
		}
		l.Holders = append(l.Holders, h)
	}
	return l
}

// holders fills in who handles the messages that have turns.
func (m *Queue) holders(ctx context.Context, lanes []Lane) error {
	held := map[string]*Holder{}
	for i := range lanes {
		for j := range lanes[i].Holders {
			if h := &lanes[i].Holders[j]; h.State == delayqueue.StateUnack {
				held[h.ID] = h
			}
		}
	}
	if len(held) == 0 {
		return nil
	}
	alive, err := m.alive(ctx)
	for _, c := range alive {
		for _, one := range c.Handling {
			if h := held[one.ID]; h != nil {
				h.Consumer, h.At = c.ID, one.Since
			}
		}
	}
	return err
}

// trim keeps the lanes in which most messages wait.
func (p *LanePage) trim() {
	slices.SortFunc(p.Lanes, func(a, b Lane) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Name, b.Name))
	})
	if over := len(p.Lanes) - maxLanes; over > 0 {
		p.Others += int64(over)
		p.Lanes = slices.Clip(p.Lanes[:maxLanes])
	}
}

// Merge adds the lanes of the call that went on from p.Next.
func (p *LanePage) Merge(more *LanePage) {
	p.Lanes = append(p.Lanes, more.Lanes...)
	p.trim()
	p.Others += more.Others
	if p.Next = more.Next; !more.Now.IsZero() { // else no shard answered that call
		p.Now = more.Now
	}
}

// Lane returns one lane, with all its holders. It returns ErrNotFound if no message that is to be delivered has the
// lane.
func (m *Queue) Lane(ctx context.Context, name string) (*Lane, error) {
	return m.oneLane(ctx, name, "")
}

// oneLane is Lane, with Waiting of those before a message that waits (script.BeforeIn).
func (m *Queue) oneLane(ctx context.Context, name, before string) (*Lane, error) {
	var got script.LanesReply
	err := fmt.Errorf("%w: a lane has 1 to %d bytes", delayqueue.ErrBadOption, message.MaxLane)
	if len(name) > 0 && len(name) <= message.MaxLane {
		got, err = m.readLanes(ctx, script.LanesRequest{Name: name, Before: before})
	}
	if err == nil && len(got.Lanes) == 0 {
		err = cmp.Or(m.there(ctx), delayqueue.ErrNotFound)
	}
	var lanes []Lane
	if err == nil {
		lanes = []Lane{laneOf(&got.Lanes[0])}
		err = m.holders(ctx, lanes)
	}
	switch {
	case partly(err) != "": // the Holders may lack their Consumers
		return &lanes[0], m.failed(err, "lane %q", name)
	case err != nil:
		return nil, m.failed(err, "lane %q", name)
	}
	return &lanes[0], nil
}

// SkipToEnd ends the turn of a message that no handler has. The message waits behind all messages of its lane that
// are due now, and the next of the lane gets the turn. A message that waits for a retry does not come sooner than
// without SkipToEnd. A TTL begins anew, as by Reschedule.
//
// It returns ErrWrongState if the message has no turn, or if it is being handled (Cancel ends it), as SkipToGarbage
// does; and if no message of its lane that is due waits behind it.
func (m *Queue) SkipToEnd(ctx context.Context, id string) error {
	return m.steerOne(ctx, script.SteerRequest{What: script.SteerLast, Targets: []script.Spot{{Tag: id}}})
}

// SkipToGarbage ends the turn of a message that no handler has, and gives the message up. The next message of its
// lane gets the turn. The last error of the message says who skipped it (WithOperator), and why (WithReason).
func (m *Queue) SkipToGarbage(ctx context.Context, id string) error {
	text := "skipped"
	if m.who.by != "" {
		text += " by " + m.who.by
	}
	if m.who.why != "" {
		text += ": " + m.who.why
	}
	text = message.ErrorText(errors.New(text))
	return m.steerOne(ctx, script.SteerRequest{What: script.SteerGarbage, Targets: []script.Spot{{Tag: id, Score: text}}})
}

// skipRefused says why a message could not be skipped.
func skipRefused(what string, no *delayqueue.StateError) error {
	if what != script.SteerLast && what != script.SteerGarbage {
		return no
	}
	switch no.State {
	case delayqueue.StateUnack:
		return fmt.Errorf("%w: it is being handled, and Cancel ends it", no)
	case delayqueue.StateWaiting:
		return fmt.Errorf("%w: it waits behind others of its lane, and has no turn", no)
	case delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry:
		return fmt.Errorf("%w: it has no lane", no)
	default:
		return no
	}
}
