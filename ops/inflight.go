package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// InFlight is a message that is being handled, and its consumer.
type InFlight struct {
	*MessageStatus           // At is when its lease ends, unless the lease is renewed
	Since          time.Time // since when a handler has the message, by the server's clock; zero: no consumer reports it

	// Holder is the consumer that reports the message. nil: the consumer has died, or got the message in the last second or two, or has
	// more than 100 messages.
	Holder *Consumer
}

// mostInFlight is how many messages InFlight looks at.
const mostInFlight = 5000

// InFlight returns at most so many (1 to 5,000) of the messages that are being handled. The message that a handler has had for longest comes
// first. Messages that no consumer reports come last. more says that there are others. InFlight looks at the 5,000 messages whose leases
// end first, or at fewer if these have 64 MB.
func (m *Queue) InFlight(ctx context.Context, most int) (all []InFlight, more bool, err error) {
	if most < 1 || most > mostInFlight {
		return nil, false, m.failed(fmt.Errorf("%w: %d messages: 1 to %d", delayqueue.ErrBadOption, most, mostInFlight), "in flight")
	}
	alive, err := m.Consumers(ctx)
	if err != nil {
		return nil, false, err
	}
	type hold struct {
		by    *Consumer
		since time.Time
	}
	holds := map[string]hold{}
	for i := range alive {
		for _, h := range alive[i].Handling {
			holds[h.ID] = hold{&alive[i], h.Since}
		}
	}
	places, err := m.places(delayqueue.StateUnack, Filter{})
	seen := map[string]bool{} // a lease that is renewed goes to the end
	var at walk
	if err == nil {
		err = at.goOn(ctx, m, places, walkPage, mostInFlight, 64<<20, func(msg *MessageStatus) bool {
			if !seen[msg.ID] {
				seen[msg.ID] = true
				h := holds[msg.ID]
				if h.by != nil {
					msg.Consumer = h.by.ID
				}
				all = append(all, InFlight{msg, h.since, h.by})
			}
			return true
		})
	}
	if err != nil {
		return nil, false, m.failed(err, "in flight")
	}
	slices.SortFunc(all, func(a, b InFlight) int {
		if a.Since.IsZero() != b.Since.IsZero() {
			return cmp.Compare(b.Since.Unix(), a.Since.Unix())
		}
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID))
	})
	more = at.Place < len(places) || len(all) > most
	return all[:min(len(all), most)], more, nil
}
