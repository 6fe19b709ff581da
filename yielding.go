package delayqueue

import "time"

// This file keeps consumers from making a server slow for others: scripts run one after the other, so whoever calls it waits for
// all fetches that came before.

const (
	slowServer  = 2 * time.Millisecond // that a fetch waits at the server: then the next ones are smaller
	slowLooks   = 3                    // fetches in a row that waited so long: one or two may have met a delay of the network
	leastFetch  = 64                   // deliveries that a fetch may ask for however slow the server is: with fewer it does more for each
	leastWindow = 5 * time.Minute      // for which the least that was seen holds, and as long again
)

// A yielding bounds how many deliveries a fetch asks for, by how long fetches wait at the server. The zero value has seen nothing. It
// never puts a fetch off: a server may be slow because its machine is, or because of somebody else, and a backlog must go all the same.
//
// A consumer begins each backlog with small fetches. If many consumers begin at once, the first fetches would take the server for long,
// and consumers that come later would take that for its usual pace.
//
// How long a fetch waits is known by the least: it is what both its whole round trip and its way to the server are longer than
// the least of these that was seen. So neither distance counts, nor how much a fetch brings, nor that a clock is stepped. The way there
// is between two clocks, whose difference is in the least, too.
type yielding struct {
	more  int       // than leastFetch
	slow  int       // fetches in a row that waited for long
	there least     // the way to the server
	whole least     // the round trip
	begun time.Time // of this consumer's first fetch
}

// most is how many deliveries a fetch may ask for.
func (p *yielding) most() int { return leastFetch + p.more }

// answered notes a fetch: when it went, the server's clock when its script ran, when its reply came, and how many deliveries it asked for
// and brought.
func (p *yielding) answered(sentAt time.Time, clock serverTime, answeredAt time.Time, want, brought int) {
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
	p.more = max(min(most, maxBatch)-leastFetch, 0)
}

// A least is the least that was seen in the last minutes.
type least struct {
	now, before time.Duration
	since       time.Duration // when now began
	some        bool
}

// above says by how much something is above the least, itself included, at an instant.
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
