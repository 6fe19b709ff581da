package ops

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// What docs/limits.md and docs/PROTOCOL.md say of the limits of a queue, as two specifications for TestLimitsHistories.

// A limitDeed is what a call did that is about limits, at some instant of the server's clock, unix us.
type limitDeed struct {
	what        string
	from, to    int64    // the instant is between them, or both
	tags        []string // of deliveries
	lease       string   // of handedOut, renewedLease, lostLease and partedLease
	count       int      // of renewedLease: so many its holder has not let go of
	loose       bool     // of renewedLease: the lease was parted at some time, and a settlement beside that is not counted
	ends        int64    // unix us: those are held at least that long
	before, now bounds   // of tookLimits
	pause       int64    // us, of saidThrottle
	was         bool     // of liftedThrottle: there was one
}

const (
	handedOut      = "handed out"
	wasSettled     = "settled"
	perhapsSettled = "perhaps settled"
	renewedLease   = "renewed"
	lostLease      = "found over"
	partedLease    = "parted"
	tookLimits     = "limits set"
	saidThrottle   = "throttled"
	liftedThrottle = "throttle lifted"
)

// bounds are limits: n in so many us and a burst, and places; each part 0 for none.
type bounds struct{ n, us, burst, places int64 }

func boundsOf(text string) (b bounds) {
	_, _ = fmt.Sscan(text, &b.n, &b.us, &b.burst, &b.places)
	return b
}

// over is what holds where these were set by a Monitor, and consumers ask for others.
func (b bounds) over(asked bounds) bounds {
	if b.n > 0 {
		asked.n, asked.us, asked.burst = b.n, b.us, b.burst
	}
	if b.places > 0 {
		asked.places = b.places
	}
	return asked
}

// A rateLife is what the rate's specification knows: in no time t more than burst + n t / us go.
type rateLife struct {
	clock int64 // us, of the last deed
	used  int64 // ns: until then what went has used the rate up; a burst may go that much before
	till  int64 // us: of a throttle
	set   bounds
}

// next is the life after a deed, and whether that may be. One whose instant is not known comes as soon as it may, which
// leaves most to those after it. What is no whole ns is rounded in favour of the queue.
func (l rateLife) next(d limitDeed, asked bounds) (bool, rateLife) {
	t := max(l.clock, d.from)
	switch d.what {
	case tookLimits:
		if d.before != l.set {
			return false, l
		}
		l.set = d.now
		b := l.set.over(asked)
		l.used = min(l.used, t*1000+(b.burst*b.us*1000+b.n-1)/b.n) // it waits for no longer than a full burst takes
	case saidThrottle:
		l.till = max(l.till, t+min(d.pause, time.Hour.Microseconds()))
	case liftedThrottle: // of one that nobody saw said, nothing is known
		if !d.was && l.till > t {
			return false, l
		}
		l.till = 0
	case handedOut:
		b := l.set.over(asked)
		takes, full := int64(len(d.tags))*b.us*1000/b.n, (b.burst*b.us*1000+b.n-1)/b.n
		t = max(t, l.till, (l.used+takes-full+999)/1000)
		l.used = max(l.used, t*1000) + takes
	}
	l.clock = t
	return t <= d.to, l
}

// A placesLife is what the places' specification knows.
type placesLife struct {
	held map[string]holding // by tag: deliveries that have not ended
	set  bounds
}

// A holding is under which lease a delivery is held, and when that ends.
type holding struct {
	lease string
	ends  int64
}

func (l placesLife) next(d limitDeed, asked bounds) (bool, placesLife) {
	l.held = maps.Clone(l.held)
	ok := true
	switch d.what {
	case tookLimits:
		ok = d.before == l.set
		l.set = d.now
	case handedOut:
		with := int64(len(d.tags))
		for _, h := range l.held {
			if h.ends > d.to {
				with++
			}
		}
		ok = with <= l.set.over(asked).places
		for _, tag := range d.tags {
			id, n := message.SplitTag(tag)
			delete(l.held, queuetest.TagOf(id, n-1)) // its lease is over
			l.held[tag] = holding{d.lease, d.ends}
		}
	case wasSettled, perhapsSettled:
		for _, tag := range d.tags {
			_, held := l.held[tag]
			ok = ok && (held || d.what == perhapsSettled)
			delete(l.held, tag)
		}
	case renewedLease:
		held := 0
		for tag, h := range l.held {
			if h.lease == d.lease {
				held++
				l.held[tag] = holding{d.lease, max(h.ends, d.ends)}
			}
		}
		ok = held <= d.count && (held > 0 || d.loose)
	case partedLease:
		for tag, h := range l.held {
			if h.lease == d.lease && !slices.Contains(d.tags, tag) {
				l.held[tag] = holding{d.lease + rest, h.ends}
			}
		}
	case lostLease:
		for tag, h := range l.held {
			if h.lease == d.lease {
				ok = ok && h.ends <= d.to
				delete(l.held, tag)
			}
		}
	}
	return ok, l
}

// limitDeeds are those of the calls. end is after all of them. A fetch whose reply nobody ever saw counts as none, which leaves
// most to the others.
func (h *history) limitDeeds(t testing.TB, end int64) (all []limitDeed) {
	const skew = 50_000 // us, by which the clocks of the test and the server may be apart
	read, parted := fetchReplies(t), map[string]bool{}
	for _, c := range h.calls {
		if c.name == "keep" {
			parted[c.args[0]] = true
		}
	}
	for _, c := range h.calls {
		from, to := c.first-skew, c.last+skew
		if c.reply == nil {
			to = end
		}
		switch c.name {
		case "fetch":
			var got script.FetchReply
			if c.reply != nil {
				got = read(c)
				if to = int64(got.Now); c.tries == 1 {
					from = to
				}
			}
			ends := to + got.Agreed.Lease.Microseconds()
			if c.at != 0 {
				from, to = c.at, c.at
			}
			if len(got.Tags) > 0 {
				all = append(all, limitDeed{what: handedOut, from: from, to: to, tags: got.Tags, lease: c.lease(), ends: ends})
			}
		case "settle":
			all = append(all, c.endings(from, to)...)
		case "extend":
			if c.reply == nil {
				continue
			}
			us, _ := strconv.ParseInt(c.args[0], 10, 64)
			names, counts := c.renewals()
			for i, name := range names {
				d := limitDeed{what: lostLease, from: from, to: to, lease: name}
				if counts[i] > 0 {
					d.what, d.ends, d.count, d.loose = renewedLease, from+us-1, counts[i], parted[name]
				}
				all = append(all, d)
			}
		case "keep":
			all = append(all, limitDeed{what: partedLease, from: from, to: to, lease: c.args[0], tags: c.args[1:]})
		case "set":
			if c.reply == nil {
				if !c.refused {
					t.Error("a call of set was not answered")
				}
				continue
			}
			at, _ := strconv.ParseInt(c.reply[0], 10, 64) // a repeat says that of the first
			switch c.args[2] {
			case "lift":
				all = append(all, limitDeed{what: liftedThrottle, from: at, to: at, was: c.reply[1] != ""})
			case "limits":
				all = append(all, limitDeed{what: tookLimits, from: at, to: at, before: boundsOf(c.reply[1]), now: boundsOf(c.args[3])})
			}
		}
	}
	return all
}

// endings are what a settle did.
func (c *recorded) endings(from, to int64) (all []limitDeed) {
	what, void := perhapsSettled, c.void()
	if c.at != 0 {
		from, to = c.at, c.at
	}
	if c.reply != nil {
		what = wasSettled
		from, _ = strconv.ParseInt(c.reply[0], 10, 64) // a repeat says that of the first
		to = from
	}
	var done []string
	var throttle int64
	for i, o := range c.outcomes() {
		if !void[i] {
			done = append(done, o.tag)
			throttle = max(throttle, o.delay)
		}
	}
	if throttle > 0 && what == wasSettled {
		all = append(all, limitDeed{what: saidThrottle, from: from, to: to, pause: throttle})
	}
	return append(all, limitDeed{what: what, from: from, to: to, tags: done})
}
