package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A looker looks at the entries of one queue. It sends nothing and changes nothing.
type looker struct {
	monitor *delayqueue.Monitor
	table   table
}

func newLooker(m *delayqueue.Monitor) looker {
	cli, prefix := m.Redis()
	return looker{m, table{cli, "{" + prefix + ":" + m.Name() + "}:schedules", time.Now}}
}

// A Status is an entry, and where it stands.
type Status struct {
	Entry
	Paused bool
	Next   time.Time // in its zone; zero if it is paused
	// Last is the last instant that was sent, skipped or passed over since its last change, in its zone. It may be ahead by
	// five seconds. Zero if there was none.
	Last    time.Time
	Skipped Skipped // since it was set first, about
	Broken  error   // it cannot be read: another program wrote it; all but Name is zero then
}

// Skipped are instants of an entry that have no message. An entry that is removed begins anew.
type Skipped struct {
	Overlap int64 // while the last message lived (Skip)
	Missed  int64 // nobody ran the entry in time: beyond CatchUp, or beyond the TTL; of a Cron at most 1,000 at a time
	Paused  int64 // while it was paused; of a Cron at most 1,000 of each pause
}

// List returns all entries of a queue, by name, to somebody who may only look: what a user of Redis needs is the line of
// a reader in docs/acl.md. It returns delayqueue.ErrNoQueue for a queue that has no key.
func List(ctx context.Context, m *delayqueue.Monitor) ([]Status, error) {
	l := newLooker(m)
	return l.List(ctx)
}

// Next returns the next n instants of an entry, at most 1,000, in its zone. Of a paused one they are those that it would
// have. It returns ErrNoEntry if there is none. It needs no more than List.
func Next(ctx context.Context, m *delayqueue.Monitor, name string, n int) ([]time.Time, error) {
	l := newLooker(m)
	return l.Next(ctx, name, n)
}

// List is List for the queue of this Scheduler.
func (l *looker) List(ctx context.Context) ([]Status, error) {
	all, err := l.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("schedule: queue %q: list: %w", l.monitor.Name(), err)
	}
	return all, nil
}

func (l *looker) list(ctx context.Context) ([]Status, error) {
	records, err := l.table.all(ctx, 0)
	if err == nil && len(records) == 0 {
		_, err = l.monitor.Counts(ctx) // ErrNoQueue
	}
	if err != nil {
		return nil, err
	}
	now, err := l.table.look(ctx, false)
	if err != nil {
		return nil, err
	}
	read := map[string]*record{}
	all := make([]Status, 0, len(records))
	for name, text := range records {
		if strings.HasPrefix(name, skipsOf("")) {
			continue
		}
		r, err := readRecord(text)
		var next []time.Time
		if err == nil {
			next, err = r.upcoming(now.us/1_000_000, 1)
		}
		switch {
		case err != nil:
			all = append(all, Status{Entry: Entry{Name: name}, Broken: err})
		case !r.Removed:
			one := Status{Entry: r.entry(name), Paused: r.Paused, Skipped: readSkips(records[skipsOf(name)])}
			one.Skipped.Paused = r.passed(now.us / 1_000_000)
			if !r.Paused && len(next) > 0 {
				one.Next = next[0]
			}
			all, read[name] = append(all, one), r
		}
	}
	if err := l.setLasts(ctx, all, read); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// setLasts says of each entry that can be read which instant was the last.
func (l *looker) setLasts(ctx context.Context, all []Status, read map[string]*record) error {
	var names []string
	for name := range read {
		names = append(names, name)
	}
	lasts, err := l.lasts(ctx, names, 0)
	if err != nil {
		return err
	}
	for i := range all {
		r := read[all[i].Name]
		if r == nil {
			continue
		}
		gen, last := split(max(lasts[all[i].Name], 0))
		if zone, err := r.zone(); err == nil && gen == r.Gen && last > 0 {
			all[i].Last = time.Unix(last, 0).In(zone)
		}
	}
	return nil
}

// lasts are the numbers at which the sequences of entries are, by the names of the entries; 0: there is none. They
// are read by the page as long as that is cheaper than one by one. limit is how long one call may take; 0: as long as ctx.
func (l *looker) lasts(ctx context.Context, names []string, limit time.Duration) (map[string]int64, error) {
	lasts, left := make(map[string]int64, len(names)), make(map[string]bool, len(names))
	for _, name := range names {
		left[name] = true
	}
	cursor := ""
	for range len(names) / 50 {
		page, err := within(ctx, limit, func(ctx context.Context) (*delayqueue.SequencePage, error) { return l.monitor.Sequences(ctx, cursor) })
		if errors.Is(err, delayqueue.ErrNotFound) {
			return lasts, nil
		}
		if err != nil {
			return nil, err
		}
		for _, q := range page.Sequences {
			if name, ours := strings.CutPrefix(q.Name, sequenceOf("")); ours && left[name] {
				delete(left, name)
				lasts[name] = q.Last
			}
		}
		if cursor = page.Next; cursor == "" { // the others have none
			return lasts, nil
		}
	}
	var mu sync.Mutex
	rest := make([]string, 0, len(left))
	for name := range left {
		rest = append(rest, name)
	}
	return lasts, side(rest, func(name string) error {
		n, err := within(ctx, limit, func(ctx context.Context) (int64, error) { return l.monitor.Sequence(ctx, sequenceOf(name)) })
		if errors.Is(err, delayqueue.ErrNotFound) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		lasts[name] = n
		return err
	})
}

// Next is Next for the queue of this Scheduler.
func (l *looker) Next(ctx context.Context, name string, n int) ([]time.Time, error) {
	all, err := l.next(ctx, name, n)
	return all, l.failed(name, "next", err)
}

func (l *looker) next(ctx context.Context, name string, n int) ([]time.Time, error) {
	r, err := l.find(ctx, name)
	if err != nil {
		return nil, err
	}
	now, err := l.table.look(ctx, false)
	if err != nil {
		return nil, err
	}
	return r.upcoming(now.us/1_000_000, n)
}

func (r *record) upcoming(now int64, n int) (all []time.Time, err error) {
	timing, err := r.timing()
	if err != nil {
		return nil, err
	}
	zone, err := r.zone()
	if err != nil {
		return nil, err
	}
	for at := max(now, r.Since); len(all) < min(n, 1000); {
		instant, found := timing.next(at)
		if !found {
			break
		}
		all, at = append(all, time.Unix(instant, 0).In(zone)), instant
	}
	return all, nil
}

// find reads an entry.
func (l *looker) find(ctx context.Context, name string) (*record, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	text, err := l.table.read(ctx, name)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, ErrNoEntry
	}
	r, err := readRecord(text)
	if err == nil {
		err = there(r)
	}
	return r, err
}

func (l *looker) failed(name, verb string, err error) error {
	if err == nil || errors.Is(err, ErrBadEntry) && strings.HasPrefix(err.Error(), "schedule:") {
		return err
	}
	return fmt.Errorf("schedule: queue %q: entry %q: %s: %w", l.monitor.Name(), name, verb, err)
}
