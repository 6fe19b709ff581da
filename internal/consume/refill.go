package consume

import (
	"context"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file fetches what settlements let go ahead: right behind a settlement, in the same round trip. The poller makes both calls, for the
// settler. Each call has its own answer, and is repeated by itself.
//
// If the concurrency of the queue is bounded, that is done while messages wait for a place. A settlement that ends a turn of a lane goes out
// like that unless more is due than was fetched, because then the poller fetches without being asked.

// Which settlements the poller makes.
const (
	joinsNone  = iota
	joinsTurns // those that let a lane go on
	joinsAll
)

// joinsAfter are the settlements that the poller makes after a fetch with this answer.
func (p *poller) joinsAfter(got *script.FetchReply) int32 {
	switch moreDue := got.Next != 0 && got.Next <= got.Now; {
	case !link.Linkable(p.store.Cli):
		return joinsNone
	case got.Limits.Full:
		return joinsAll
	case moreDue:
		return joinsNone
	}
	return joinsTurns
}

// A jointCall is a settlement that the poller is asked to make.
type jointCall struct {
	batch       []outcome
	settlements []script.Settlement
	caller      *script.Caller
	end         chan jointEnd // with room for one
}

// A jointEnd says what became of a jointCall.
type jointEnd struct {
	script.SettleEnd
	left bool // the settlement was not made
}

const (
	// pollerPatience is how long a settlement waits for the poller, which may be making a call. A settlement alone would set the alarm, and
	// the poller would make its next call because of the alarm, and so on.
	pollerPatience = 50 * time.Millisecond
	// workerPatience is how long the poller waits for the workers whose outcomes are settled, which are about to be free. Without them the
	// fetch would ask for too little.
	workerPatience = 5 * time.Millisecond
)

// goesOn reports whether one of some settlements ends a turn of a lane that probably has more that is due: its message waited for the turn,
// because it was due at the fetch before the one that brought it. Without wake-ups nothing else tells of the next message.
func (s *settler) goesOn(batch []outcome, settlements []script.Settlement) bool {
	for i := range settlements {
		d := batch[i].d
		if settlements[i].EndsTurn() && (message.ServerTime(d.msg.Due.UnixMicro()) <= d.lease.before || s.poller.wakeUpsOff.Load()) {
			return true
		}
	}
	return false
}

// jointly has the poller make a settlement. made says whether the poller made it.
func (s *settler) jointly(batch []outcome, settlements []script.Settlement, goesOn bool) (end jointEnd, made bool) {
	if joins := s.joins.Load(); joins == joinsNone || joins == joinsTurns && !goesOn {
		return end, false
	}
	c := &jointCall{batch, settlements, s.caller, make(chan jointEnd, 1)}
	select {
	case s.joint <- c:
		end = <-c.end
		return end, !end.left
	case <-time.After(pollerPatience):
		return end, false
	}
}

// refill makes a joint call, if a worker is free for what the call may fetch.
func (p *poller) refill(c *jointCall) {
	patience := time.After(workerPatience)
	for waits := true; waits && p.leases.held.totals().deliveries-p.member.unhandled() < len(c.batch); {
		select {
		case <-p.freed:
		case <-patience:
			waits = false
		}
	}
	if p.member.room(p.limit(), true, 0) == 0 || p.lifecycle.stopping() {
		c.end <- jointEnd{left: true}
		return
	}
	p.pollBehind(c, false, "")
	select {
	case c.end <- jointEnd{left: true}: // if no attempt was made; else nobody reads it
	default:
	}
}

// jointly makes one attempt at a settlement and the fetch behind it.
func (p *poller) jointly(ctx context.Context, c *jointCall, q script.FetchRequest) (got script.FetchReply, err error) {
	end, got, err := p.store.SettleAndFetch(ctx, c.caller, c.settlements, p.caller, q)
	if end.Err == nil {
		var settled []*delivery
		for i := range c.batch {
			if !slices.Contains(end.Reply.Left, i) {
				settled = append(settled, c.batch[i].d)
			}
		}
		p.leases.remove(settled...) // before what comes is counted
	}
	if err == nil {
		p.settler.joins.Store(p.joinsAfter(&got)) // before the settler has its next batch
	}
	c.end <- jointEnd{SettleEnd: end}
	return got, err
}
