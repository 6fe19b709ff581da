package delayqueue

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Consumer is a DelayQueue that consumes, as it reports itself about once a second; where a process consumes more than
// three queues over one client, an idle one does so every other poll (WithFetchInterval).
type Consumer struct {
	ID          string     // another one with each start
	Host        string     // os.Hostname
	PID         int        // of its process
	Since       time.Time  // by the server's clock
	Seen        time.Time  // when it reported this
	Concurrency int        // how many deliveries it handles at a time
	Handling    []Handling // the longest first; at most 100
}

// Handling is a message in the hands of a handler.
type Handling struct {
	ID    string        // of the message
	For   time.Duration // until Consumer.Seen
	Since time.Time     // by the server's clock
}

// Consumers returns the consumers that are alive, the oldest first. One that was killed is taken for
// alive until its lease has run out, or for 3 s if that is longer.
func (m *Monitor) Consumers(ctx context.Context) ([]Consumer, error) {
	alive, err := read(ctx, func(ctx context.Context) (alive []Consumer, err error) {
		for c, err := range m.store.consumers(ctx) {
			if err != nil {
				return nil, err
			}
			alive = append(alive, c)
		}
		return alive, nil
	})
	if err == nil && len(alive) == 0 {
		err = m.there(ctx)
	}
	if err != nil {
		return nil, m.failed(err, "consumers")
	}
	slices.SortFunc(alive, func(a, b Consumer) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	return alive, nil
}

// presence is what a consumer reports of itself, as JSON. Its times are durations until then, for the
// server's clock is not this machine's.
type presence struct {
	Host        string           `json:"host"`
	PID         int              `json:"pid"`
	UpUs        int64            `json:"up"`
	Concurrency int              `json:"concurrency"`
	Handling    []handledMessage `json:"handling,omitempty"`
}

type handledMessage struct {
	ID string `json:"id"`
	Us int64  `json:"us"` // since its handler started
}

const (
	presenceInterval    = time.Second
	maxPresenceMessages = 100
	minAlive            = 3 * time.Second // how long a silent consumer counts as alive, if its lease is not longer
	presenceLeaving     = "-"             // the consumer has stopped
)

// consumerOf reads a consumer's entry, and reports whether it is alive. lua/drop.lua has the same rule.
func consumerOf(id, text string, now int64) (Consumer, bool) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return Consumer{}, false // somebody else's
	}
	seen, err := strconv.ParseInt(parts[0], 10, 64)
	lease, lerr := strconv.ParseInt(parts[1], 10, 64)
	var s presence
	if err != nil || lerr != nil || json.Unmarshal([]byte(parts[2]), &s) != nil ||
		max(now-seen, seen-now) > max(lease, minAlive.Microseconds()) {
		return Consumer{}, false
	}
	c := Consumer{
		ID: id, Host: s.Host, PID: s.PID, Since: instantTime(seen - max(s.UpUs, 0)), Seen: instantTime(seen), Concurrency: s.Concurrency,
	}
	for _, h := range s.Handling {
		us := min(max(h.Us, 0), forever)
		c.Handling = append(c.Handling, Handling{h.ID, microseconds(us), instantTime(seen - us)})
	}
	return c, true
}

var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return cmp.Or(name, "unknown")
})

// presence is what this consumer reports of itself; "" if it has done so lately.
func (p *poller) presence(now time.Time) string {
	every := presenceInterval
	if p.state.idleTicks {
		every = max(every, min(p.settings.lease/3, maxIdleInterval)) // it counts as alive for a lease
	}
	if now.Sub(p.presenceAt) < every {
		return ""
	}
	p.presenceAt = now
	self := presence{
		Host: hostname(), PID: os.Getpid(), UpUs: now.Sub(p.since).Microseconds(), Concurrency: p.member.atMost,
		Handling: p.member.handling(now),
	}
	text, _ := json.Marshal(self) // there is nothing in it that cannot be written
	return string(text)
}

// handling is what is in the hands of handlers, the longest first.
func (m *member) handling(now time.Time) (all []handledMessage) {
	for _, d := range m.serving() {
		all = append(all, handledMessage{d.msg.ID, d.started.age(now).Microseconds()})
	}
	slices.SortFunc(all, func(a, b handledMessage) int { return cmp.Compare(b.Us, a.Us) })
	return all[:min(len(all), maxPresenceMessages)]
}
