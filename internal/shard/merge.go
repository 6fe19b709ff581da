package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file has what is known of the whole queue by numbers. The calls hide those of the first shard. They are tried
// until Redis answers, as link.Read does. If some shards do not answer, the reply is that of the others, beside a
// *MissingError.

// readEach calls f for all shards at once, for each of them until it answers.
func readEach[T any](ctx context.Context, set *Set, f func(context.Context, *script.Store) (T, error)) ([]T, error) {
	return each(ctx, set.All, "", func(ctx context.Context, s *script.Store) (T, error) {
		return link.Read(ctx, func(ctx context.Context) (T, error) { return f(ctx, s) })
	})
}

// readAll is readEach for all shards of a queue.
func readAll[T any](ctx context.Context, q *Queue, f func(context.Context, *script.Store) (T, error)) (
	*Set, []T, error) {
	set, err := q.Look(ctx)
	if err != nil {
		return nil, nil, err
	}
	got, err := readEach(ctx, set, f)
	return set, got, err
}

// ReadCounts adds up. Now is the latest of the clocks, so that nothing that was written before is later. It returns
// ErrNoQueue if no shard was ever used.
func (q *Queue) ReadCounts(ctx context.Context) (script.CountsReply, error) {
	set, got, err := readAll(ctx, q, func(ctx context.Context, s *script.Store) (script.CountsReply, error) {
		return s.Counts(ctx)
	})
	if len(got) == 0 {
		return script.CountsReply{}, err
	}
	c := got[0]
	if len(set.All) > 1 {
		c = sumOf(got, len(set.All))
	}
	if err == nil && !c.Used {
		err = script.ErrNoQueue
	}
	return c, err
}

// sumOf is the counts of a queue with so many shards.
func sumOf(got []script.CountsReply, shards int) (all script.CountsReply) {
	all.Layout = "1"
	var asked, set []script.RateLimits
	paused := 0
	for i := range got {
		c := &got[i]
		all.Now, all.Used = max(all.Now, c.Now), all.Used || c.Used
		if script.CheckLayout(all.Layout) == nil {
			all.Layout = c.Layout
		}
		all.Pending, all.Ready, all.Unack, all.Retry = all.Pending+c.Pending, all.Ready+c.Ready, all.Unack+c.Unack,
			all.Retry+c.Retry
		all.Waiting, all.Garbage, all.Done = all.Waiting+c.Waiting, all.Garbage+c.Garbage, all.Done+c.Done
		all.Unaccounted += c.Unaccounted
		all.Behind, all.LaneSince, all.NextDue = max(all.Behind, c.Behind), earlier(all.LaneSince, c.LaneSince),
			earlier(all.NextDue, c.NextDue)
		all.ThrottledUntil = later(all.ThrottledUntil, c.ThrottledUntil)
		all.LossSince, all.LossMessages = earlier(all.LossSince, c.LossSince), all.LossMessages+c.LossMessages
		all.BooksSince = later(all.BooksSince, c.BooksSince)
		addPause(&all.QueueCounts, &c.QueueCounts)
		if c.Paused {
			paused++
		}
		// if one shard waits for an instant and another for a handler, the instant is when the next message may go at
		// the latest
		if c.Limited {
			all.Limited = true
			all.LimitedSince, all.LimitedUntil = earlier(all.LimitedSince, c.LimitedSince),
				earlier(all.LimitedUntil, c.LimitedUntil)
		}
		asked, set = append(asked, c.Asked), append(set, c.Set)
	}
	most, having := mostHave(set)
	all.Asked, all.Set = Whole(commonLimits(asked), shards), Whole(most, shards)
	all.SetIn = onlyIn(having, len(got))
	if only := onlyIn(paused, len(got)); all.Paused && only != "" {
		all.PauseReason = strings.TrimSuffix(only+": "+all.PauseReason, ": ")
	}
	return all
}

// onlyIn says in how many of the shards something is so; "" if in all.
func onlyIn(some, all int) string {
	if some == all {
		return ""
	}
	return fmt.Sprintf("only in %d of %d shards", some, all)
}

// addPause: a queue is paused if a shard is, until all shards go on. Who has paused it and why is what the first of
// them says.
func addPause(all, c *script.QueueCounts) {
	switch {
	case !c.Paused:
	case !all.Paused:
		all.Paused, all.PausedUntil, all.PausedSince, all.PausedBy, all.PauseReason = true, c.PausedUntil, c.PausedSince,
			c.PausedBy, c.PauseReason
	case all.PausedUntil.IsZero() || c.PausedUntil.IsZero():
		all.PausedUntil = time.Time{} // until Resume
	default:
		all.PausedUntil = later(all.PausedUntil, c.PausedUntil)
	}
}

// earlier is the earlier of two instants, of which one may be zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Balance adds up. Since is when the last of the shards opened its books. If a shard that has messages has no books,
// Since is zero, and Here alone is known. A shard without any key counts for nothing. It returns ErrNoQueue if all
// are like that.
func (q *Queue) Balance(ctx context.Context) (all script.Balance, err error) {
	_, got, err := readAll(ctx, q, func(ctx context.Context, s *script.Store) (*script.Balance, error) {
		b, err := s.Balance(ctx)
		if errors.Is(err, script.ErrNoQueue) {
			return nil, nil
		}
		return &b, err
	})
	used, closed := false, false
	for _, b := range got {
		if b == nil {
			continue
		}
		used = true
		all.Since, closed = later(all.Since, b.Since), closed || b.Since.IsZero() && b.Here > 0
		addBalance(&all, b)
	}
	if closed {
		all = script.Balance{Here: all.Here}
	}
	if err == nil && !used {
		err = script.ErrNoQueue
	}
	return all, err
}

func addBalance(all, b *script.Balance) {
	for _, sum := range []struct {
		to *int64
		n  int64
	}{
		{&all.Entered, b.Entered}, {&all.Sent, b.Sent}, {&all.Followed, b.Followed}, {&all.Scheduled, b.Scheduled},
		{&all.Imported, b.Imported},
		{&all.Found, b.Found}, {&all.Left, b.Left}, {&all.Acked, b.Acked}, {&all.Over, b.Over},
		{&all.Superseded, b.Superseded},
		{&all.Intercepted, b.Intercepted}, {&all.Canceled, b.Canceled}, {&all.Deleted, b.Deleted}, {&all.Aged, b.Aged},
		{&all.Trimmed, b.Trimmed},
		{&all.WrittenOff, b.WrittenOff}, {&all.Here, b.Here}, {&all.Unaccounted, b.Unaccounted},
	} {
		*sum.to += sum.n
	}
}

// History adds up. Now is that of the first shard that answers.
func (q *Queue) History(ctx context.Context) (all script.HistoryReply, err error) {
	_, got, err := readAll(ctx, q, func(ctx context.Context, s *script.Store) (script.HistoryReply, error) {
		return s.History(ctx)
	})
	for i, one := range got {
		if i == 0 {
			all = one
			continue
		}
		addSpans(all.Hours, one.Hours)
		addSpans(all.Days, one.Days)
	}
	return all, err
}

func addSpans(all, more map[int64]script.SpanCounts) {
	for span, n := range more {
		a := all[span]
		if started := float64(a.Started) + float64(n.Started); started > 0 { // the mean of all
			a.Lateness = time.Duration(
				(float64(a.Lateness)*float64(a.Started) + float64(n.Lateness)*float64(n.Started)) / started)
		}
		a.MaxLateness = max(a.MaxLateness, n.MaxLateness)
		a.Sent, a.Delivered, a.Acked, a.Failed = a.Sent+n.Sent, a.Delivered+n.Delivered, a.Acked+n.Acked, a.Failed+n.Failed
		a.Lost, a.Garbage, a.Superseded, a.Started = a.Lost+n.Lost, a.Garbage+n.Garbage, a.Superseded+n.Superseded,
			a.Started+n.Started
		all[span] = a
	}
}

// Forecast adds up. If from is 0, the spans of each shard begin at its own now, and From is that of the first shard
// that answers.
func (q *Queue) Forecast(ctx context.Context, from int64, step time.Duration,
	n int) (all script.ForecastReply, err error) {
	_, got, err := readAll(ctx, q, func(ctx context.Context, s *script.Store) (script.ForecastReply, error) {
		return s.Forecast(ctx, from, step, n)
	})
	for i, one := range got {
		if i == 0 {
			all = one
			continue
		}
		for j := range all.Due {
			all.Due[j].Pending += one.Due[j].Pending
			all.Due[j].Retry += one.Due[j].Retry
		}
	}
	return all, err
}

// Limits of the whole queue and of a shard.

// Divide is the part of a shard in limits of a queue with n shards. The shards together never go faster than the
// rate. The burst and the concurrency are rounded up, so that each shard has at least 1.
func Divide(l script.RateLimits, n int) (script.RateLimits, error) {
	l.Burst, l.Concurrency = (l.Burst+n-1)/n, l.Concurrency/n+min(l.Concurrency%n, 1)
	whole := l.Per
	l.Per *= time.Duration(n)
	if n > 1 && l.Rated() && (l.Per/time.Duration(n) != whole || !l.ValidRate()) {
		return l, fmt.Errorf(
			"%w: a rate of %d in %v is too slow for a queue with %d shards: each shard has its part of it, and %s",
			message.ErrBadOption, l.Rate, whole, n, script.RateRule)
	}
	return l, nil
}

// Whole is what limits of a shard mean for a queue with n of them. It takes Divide back, but for what that rounds up.
func Whole(l script.RateLimits, n int) script.RateLimits {
	if n > 1 {
		const most, mostBurst = 1<<31 - 1, 1_000_000 // that can be set
		l.Per /= time.Duration(n)
		l.Burst, l.Concurrency = min(l.Burst*n, mostBurst), int(min(int64(l.Concurrency)*int64(n), most))
	}
	return l
}

// mostHave returns the limits that most shards have, perhaps none, and how many that are. Others were away when they
// were set or taken back.
func mostHave(shards []script.RateLimits) (most script.RateLimits, having int) {
	n := map[script.RateLimits]int{}
	for _, l := range shards {
		if n[l]++; n[l] > having {
			most, having = l, n[l]
		}
	}
	return most, having
}

// commonLimits returns the limits of the first shard that has limits. All shards have the same.
func commonLimits(shards []script.RateLimits) (all script.RateLimits) {
	for _, l := range shards {
		if !all.Rated() {
			all.Rate, all.Per, all.Burst = l.Rate, l.Per, l.Burst
		}
		if all.Concurrency == 0 {
			all.Concurrency = l.Concurrency
		}
	}
	return all
}

// cut reads a cursor over all shards: where the shard lies, a slash, and the cursor in that shard. Without a slash,
// it is one of the first shard.
func (s *Set) cut(cursor string) (i int, rest string) {
	head, rest, found := strings.Cut(cursor, "/")
	if !found {
		return 0, cursor
	}
	at := 0
	if _, err := fmt.Sscan(head, &at); err != nil {
		return 0, cursor
	}
	for i < len(s.All) && s.At(i) < at {
		i++
	}
	return i, rest
}

// cursor is the opposite of cut.
func (s *Set) cursor(i int, rest string) string { return fmt.Sprintf("%d/%s", s.At(i), rest) }
