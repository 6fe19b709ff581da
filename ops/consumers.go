package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Consumer is a DelayQueue that consumes. It reports this about once a second. If a process consumes more than
// three queues over one client, its idle consumers report every third of a lease, or every 10 s if that is sooner.
type Consumer struct {
	ID          string     // differs with each start
	Host        string     // os.Hostname
	PID         int        // of its process
	Since       time.Time  // when it started, by the server's clock
	Seen        time.Time  // when it reported this
	Concurrency int        // how many deliveries it handles at a time
	Handling    []Handling // the longest first; at most 100
	Kinds       []Kind     // in the order of KindsOf, which adds up those of several consumers
}

// Handling is a message that a handler has.
type Handling struct {
	ID    string        // of the message
	For   time.Duration // until Consumer.Seen
	Since time.Time     // by the server's clock
}

// Consumers returns the consumers that are alive, the oldest first. A consumer that was killed counts as alive until
// its lease has run out, and for 3 s at least. If some shards of the queue do not answer, Consumers returns what the
// others say beside the error.
func (m *Queue) Consumers(ctx context.Context) ([]Consumer, error) {
	alive, err := m.alive(ctx)
	if err == nil && len(alive) == 0 {
		err = m.there(ctx)
	}
	if err != nil {
		err = m.failed(err, "consumers")
	}
	slices.SortFunc(alive, func(a, b Consumer) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID))
	})
	return alive, err
}

// alive returns the consumers that are alive, in no order.
func (m *Queue) alive(ctx context.Context) (alive []Consumer, err error) {
	entries, err := m.store.Consumers(ctx)
	at := map[string]int{}
	for _, e := range entries {
		c, lives := consumerOf(e.ID, e.Text, e.Now)
		if !lives {
			continue
		}
		if i, met := at[c.ID]; met {
			alive[i].add(&c)
		} else {
			at[c.ID] = len(alive)
			alive = append(alive, c)
		}
	}
	return alive, err
}

// maxHandling is how many messages a consumer reports.
const maxHandling = 100

// cut says whether the consumer perhaps handles more messages than it reports.
func (c *Consumer) cut() bool { return len(c.Handling) >= maxHandling && c.Concurrency > maxHandling }

// add adds what the consumer has said in another shard.
func (c *Consumer) add(more *Consumer) {
	if more.Since.Before(c.Since) {
		c.Since = more.Since
	}
	if more.Seen.After(c.Seen) {
		c.Seen = more.Seen
	}
	c.Concurrency = max(c.Concurrency, more.Concurrency)
	c.Handling = append(c.Handling, more.Handling...)
	slices.SortStableFunc(c.Handling, func(a, b Handling) int { return cmp.Compare(b.For, a.For) })
	c.Handling = c.Handling[:min(len(c.Handling), maxHandling)]
	c.Kinds = sumKinds(append(c.Kinds, more.Kinds...))
}

// consumerOf reads a consumer's entry, and reports whether it is alive. lua/drop.lua has the same rule.
func consumerOf(id, text string, now int64) (Consumer, bool) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return Consumer{}, false // of another program
	}
	seen, err := strconv.ParseInt(parts[0], 10, 64)
	lease, lerr := strconv.ParseInt(parts[1], 10, 64)
	var s script.Presence
	if err != nil || lerr != nil || json.Unmarshal([]byte(parts[2]), &s) != nil ||
		max(now-seen, seen-now) > max(lease, script.MinAlive.Microseconds()) {
		return Consumer{}, false
	}
	c := Consumer{
		ID: id, Host: s.Host, PID: s.PID, Since: message.InstantTime(seen - max(s.UpUs, 0)), Seen: message.InstantTime(seen),
		Concurrency: s.Concurrency, Kinds: kindsOf(&s),
	}
	for _, h := range s.Handling {
		us := min(max(h.Us, 0), message.Forever)
		c.Handling = append(c.Handling, Handling{h.ID, message.Microseconds(us), message.InstantTime(seen - us)})
	}
	return c, true
}
