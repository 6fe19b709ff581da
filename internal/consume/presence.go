package consume

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

const maxPresenceMessages = 100

var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return cmp.Or(name, "unknown")
})

// presence is what this consumer reports of itself, and "" if it has reported less than tickInterval ago.
func (p *poller) presence(now time.Time) string {
	every := tickInterval
	if p.state.idleTicks {
		every = max(every, min(p.settings.Lease/3, maxIdleInterval)) // it counts as alive for a lease
	}
	if now.Sub(p.presenceAt) < every {
		return ""
	}
	p.presenceAt = now
	self := script.Presence{
		Host: hostname(), PID: os.Getpid(), UpUs: now.Sub(p.since).Microseconds(), Concurrency: p.member.AtMost,
		Handling: p.member.handling(now),
	}
	text, _ := json.Marshal(self) // each of its fields can be encoded
	return string(text)
}

// handling is what is in the hands of handlers, the longest first.
func (m *member) handling(now time.Time) (all []script.HandledMessage) {
	for _, d := range m.serving() {
		all = append(all, script.HandledMessage{ID: d.msg.ID, Us: d.started.Age(now).Microseconds()})
	}
	slices.SortFunc(all, func(a, b script.HandledMessage) int { return cmp.Compare(b.Us, a.Us) })
	return all[:min(len(all), maxPresenceMessages)]
}
