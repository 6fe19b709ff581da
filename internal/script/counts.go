package script

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// This file has the typed calls of the scripts that count, and publishes events.

// Counts are the fields of delayqueue.Counts.
type Counts struct {
	Pending int64
	Ready   int64
	Unack   int64
	Retry   int64
	Waiting int64
	Garbage int64
	Done    int64
	Behind  time.Duration
	NextDue time.Time
}

// QueueCounts are the fields of ops.Counts.
type QueueCounts struct {
	Counts
	LaneSince      time.Time
	Paused         bool
	PausedUntil    time.Time
	PausedSince    time.Time
	PausedBy       string
	PauseReason    string
	Limited        bool
	LimitedSince   time.Time
	LimitedUntil   time.Time
	Unaccounted    int64
	ThrottledUntil time.Time
	LossSince      time.Time
	LossMessages   int64
	BooksSince     time.Time
}

// A CountsReply is what is known of a queue by numbers.
type CountsReply struct {
	QueueCounts
	Now    int64  // the server's clock, unix us
	Used   bool   // it was ever used
	Layout string // as it stands in state; 1 if it does not

	Asked, Set RateLimits // limits that consumers ask for, and those of ops.Queue.SetLimits
	SetIn      string     // "only in 5 of 6 shards" if others have other limits than Set, or none; "": all have Set
}

func (s *Store) Counts(ctx context.Context) (n CountsReply, err error) {
	r := s.run(ctx, CountsScript, nil)
	n.Now = r.int64()
	n.Pending, n.Ready, n.Unack, n.Retry, n.Garbage, n.Done = r.int64(), r.int64(), r.int64(), r.int64(), r.int64(),
		r.int64()
	if oldest := r.int64(); oldest > 0 {
		n.Behind = max(time.Duration(n.Now-oldest)*time.Microsecond, 0)
	}
	n.NextDue = message.InstantTime(r.int64())
	pause := r.int64()
	if n.Paused = pause > 0; pause < message.Forever {
		n.PausedUntil = message.InstantTime(pause)
	}
	n.Used = r.number() > 0 || n.QueueCounts != (QueueCounts{})
	n.Layout = r.text()
	n.Asked, n.Set = limitsOf(strings.Fields(r.text())), limitsOf(strings.Fields(r.text()))
	n.LimitedSince, n.LimitedUntil = message.InstantTime(r.int64()), message.InstantTime(r.int64())
	n.Limited = !n.LimitedSince.IsZero()
	n.ThrottledUntil = message.InstantTime(r.int64())
	if said := r.text(); n.Paused {
		n.PausedSince, n.PausedBy, n.PauseReason = pausedOf(said, pause, n.Now)
	}
	n.Waiting, n.LaneSince = r.int64(), message.InstantTime(r.int64())
	n.Unaccounted = r.int64()
	n.LossSince, n.LossMessages = lossOf(r.text())
	n.BooksSince = message.InstantTime(r.int64())
	return n, r.err("counts")
}

// consumersPages bounds how many pages of consumers are read, 25 on each.
const consumersPages = 1000

// A ConsumerEntry is what a consumer last said of itself.
type ConsumerEntry struct {
	ID, Text string
	Now      int64 // the server's clock, unix us
}

// Consumers are the entries of all consumers, in no order.
func (s *Store) Consumers(ctx context.Context) ([]ConsumerEntry, error) {
	entries, cursor := map[string]ConsumerEntry{}, "0" // an entry may come twice
	for range consumersPages {
		r := s.run(ctx, ConsumersScript, []any{cursor})
		now := r.int64()
		cursor = r.text()
		for len(r.rest) > 0 && r.bad == nil {
			id := r.text()
			entries[id] = ConsumerEntry{id, r.text(), now}
		}
		if err := r.err("consumers"); err != nil {
			return nil, err
		}
		if cursor == "0" {
			break
		}
	}
	return slices.Collect(maps.Values(entries)), nil
}

// SpanCounts has the fields of Tally. Start is left zero.
type SpanCounts struct {
	Start       time.Time
	Sent        int64
	Delivered   int64
	Acked       int64
	Failed      int64
	Lost        int64
	Garbage     int64
	Superseded  int64
	Started     int64
	Lateness    time.Duration
	MaxLateness time.Duration
}

// spanCountsOf reads the numbers of an hour or a day; what is not that counts as nothing.
func spanCountsOf(text string) SpanCounts {
	var n [10]int64
	fields := strings.Fields(text)
	if len(fields) != len(n) {
		return SpanCounts{}
	}
	for i, field := range fields {
		var err error
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return SpanCounts{}
		}
	}
	t := SpanCounts{Sent: n[0], Delivered: n[1], Acked: n[2], Failed: n[3], Lost: n[4], Garbage: n[5], Superseded: n[6],
		Started: n[7]}
	if t.Started > 0 {
		t.Lateness = time.Duration(min(float64(n[8])/float64(t.Started)*float64(time.Millisecond), float64(message.MaxDelay)))
	}
	t.MaxLateness = min(time.Duration(n[9]), message.MaxDelay/time.Millisecond) * time.Millisecond
	return t
}

// A HistoryReply is what was counted in each hour and day, by hours and by days since 1970.
type HistoryReply struct {
	Now         int64 // the server's clock, unix us
	Hours, Days map[int64]SpanCounts
}

func (s *Store) History(ctx context.Context) (HistoryReply, error) {
	r := s.run(ctx, HistoryScript, nil)
	out := HistoryReply{Hours: map[int64]SpanCounts{}, Days: map[int64]SpanCounts{}}
	out.Now = r.int64()
	for len(r.rest) > 0 && r.bad == nil {
		span, daily := strings.CutPrefix(r.text(), "d")
		start, err := strconv.ParseInt(span, 10, 64)
		if err != nil {
			r.fail("span %q", span)
		}
		t := spanCountsOf(r.text())
		if daily {
			out.Days[start] = t
		} else {
			out.Hours[start] = t
		}
	}
	return out, r.err("history")
}

// Publish tells the Monitors of all machines, over the user's client: an event that is late or lost delays no
// message. In a Cluster any node would do, as it does for a client of the user's own type, but from one to the next
// events overtake each other; so it is the queue's own, which a subscriber asks too.
func (s *Store) Publish(limit time.Duration, text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if s.Link == nil {
		return s.Cli.Publish(ctx, s.Keys.Events, text).Err()
	}
	node, err := s.Node(ctx)
	if err != nil {
		return err
	}
	return node.Publish(ctx, s.Keys.Events, text).Err()
}

// A ForecastReply is how many messages come due before the instant from, in spans of time that follow it, and after
// them.
type ForecastReply struct {
	Now, From int64
	Due       []dueCount
}

type dueCount struct{ Pending, Retry int64 }

// Forecast counts in n spans of the length step; the first begins at from, or at the server's now if that is 0.
func (s *Store) Forecast(ctx context.Context, from int64, step time.Duration, n int) (f ForecastReply, err error) {
	r := s.run(ctx, ForecastScript, []any{from, step.Microseconds(), n})
	f.Now, f.From = r.int64(), r.int64()
	for range n + 2 {
		f.Due = append(f.Due, dueCount{r.int64(), r.int64()})
	}
	return f, r.err("forecast")
}
