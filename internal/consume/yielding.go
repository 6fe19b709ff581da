package consume

import (
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file keeps consumers from making a server slow for others. Scripts run one after the other, so each call waits for all fetches that came
// before.

const (
	slowServer  = 2 * time.Millisecond // if fetches wait at the server for that long, the next ones are smaller
	slowLooks   = 3                    // so many fetches in a row: one or two may have met a delay of the network
	leastFetch  = 64                   // deliveries that a fetch may ask for however slow the server is, because small fetches cost it more for each
	nearServer  = time.Millisecond     // if the least round trip is no longer, a second one does not matter beside a large fetch
	leastWindow = 5 * time.Minute      // a least holds for one to two of these
)

// A yielding bounds how many deliveries a fetch asks for, by how long fetches wait at the server. The zero value has seen nothing. A yielding never
// puts a fetch off. A server may be slow because its machine is, or because of somebody else, and a backlog must go all the same.
//
// A consumer begins each backlog with small fetches. If many consumers began at once with large ones, consumers that come later would take the
// slow server for its usual pace.
//
// A fetch is compared with the least round trip, and with the least way to the server, that were seen lately. The wait at the server is the smaller
// of the two differences. So distance does not count, nor how much a fetch brings, nor a step of a clock. The way to the server is measured
// between two clocks, and their difference is in its least, too.
type yielding struct {
	more  int       // deliveries above leastFetch
	slow  int       // fetches in a row that waited for long
	there least     // the way to the server
	whole least     // the round trip
	begun time.Time // of this consumer's first fetch
}

// most is how many deliveries a fetch may ask for.
func (p *yielding) most() int { return leastFetch + p.more }

// apart is how many messages are so many that they are read by a call of their own. That costs the server less, and a round trip, so the server
// must be near. 0: any number is too few.
func (p *yielding) apart() int {
	if !p.whole.some || p.whole.least() > nearServer {
		return 0
	}
	return 2 * leastFetch
}

// answered notes a fetch: when it went, the server's clock when its script ran, when its reply came, and how many deliveries it asked for
// and brought.
func (p *yielding) answered(sentAt time.Time, clock message.ServerTime, answeredAt time.Time, want, brought int) {
	if p.begun.IsZero() {
		p.begun = sentAt
	}
	at := sentAt.Sub(p.begun)
	there := time.Duration(int64(clock)-p.begun.UnixMicro())*time.Microsecond - at
	waited := min(p.there.above(there, at), p.whole.above(answeredAt.Sub(sentAt), at))
	slow := max(slowServer, p.whole.least()/8) // the delays of a long way vary
	most := p.most()
	switch {
	case waited < slow:
		if p.slow = 0; brought >= most {
			most += most / 8
		}
	default:
		if p.slow++; p.slow == slowLooks {
			p.slow, most = 0, most/2
		}
	}
	if brought < want { // there is no backlog
		most = min(most, 2*brought)
	}
	p.more = max(min(most, script.MaxBatch)-leastFetch, 0)
}

// A least is the least value that was seen in the last minutes.
type least struct {
	now, before time.Duration
	since       time.Duration // when now began
	some        bool
}

// above notes a value, and returns by how much it is above the least.
func (l *least) above(d, at time.Duration) time.Duration {
	switch {
	case !l.some:
		l.now, l.before, l.since, l.some = d, d, at, true
	case at-l.since > leastWindow:
		l.now, l.before, l.since = d, l.now, at
	}
	l.now = min(l.now, d)
	return d - l.least()
}

func (l *least) least() time.Duration { return min(l.now, l.before) }
