package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// mostAlone is how many entries are read one by one, if so many have changed.
const mostAlone = 20

// readChanged reads the entries that have changed, or all of them if it is not known which, and once a minute. Those
// that are open are completed if whoever changed them does not.
func (r *runner) readChanged(ctx context.Context, now *reading) error {
	again := time.Since(r.readAt) > rereadEvery
	if now.version == r.version && !again {
		return nil
	}
	done := false
	if !again {
		changes, err := within(ctx, callLimit, func(ctx context.Context) (string, error) {
			return r.table.read(ctx, changesField)
		})
		if err != nil {
			return err
		}
		names, known := changedSince(r.version, now.version, changes)
		slices.Sort(names) // a change takes some steps
		if names = slices.Compact(names); known && len(names) <= mostAlone {
			if err := r.readSome(ctx, names); err != nil {
				return err
			}
			done = true
		}
	}
	if !done {
		if err := r.readAll(ctx); err != nil {
			return err
		}
		r.readAt = time.Now()
	}
	r.version = now.version
	return nil
}

// readSome reads these entries.
func (r *runner) readSome(ctx context.Context, names []string) error {
	for _, name := range names {
		text, err := within(ctx, callLimit, func(ctx context.Context) (string, error) { return r.table.read(ctx, name) })
		if err != nil {
			return err
		}
		if text == "" {
			delete(r.entries, name)
			delete(r.broken, name)
		} else if e := r.entry(name, text); e != nil {
			r.entries[name] = e
		} else {
			delete(r.entries, name)
		}
	}
	return nil
}

// readAll reads all entries.
func (r *runner) readAll(ctx context.Context) error {
	all, err := r.table.all(ctx, callLimit)
	if err != nil {
		return err
	}
	entries := make(map[string]*entry, len(all))
	for name, text := range all {
		if beside(name) {
			continue
		}
		if e := r.entry(name, text); e != nil {
			entries[name] = e
		}
	}
	r.entries = entries
	for name := range r.broken {
		if _, there := all[name]; !there {
			delete(r.broken, name)
		}
	}
	return nil
}

// entry is what a text says; what is known of the entry stays if that is the same. It is nil, and the log knows, if
// it cannot be read.
func (r *runner) entry(name, text string) *entry {
	if e := r.entries[name]; e != nil && e.text == text {
		return e
	}
	e, err := newEntry(name, text)
	if err == nil {
		return e
	}
	if was, logged := r.broken[name]; !logged || was != text {
		r.broken[name] = text
		r.log.Error("schedule: an entry cannot be read, and is left alone", slog.String("queue", r.queue.Name()),
			slog.String("entry", name), slog.Any("error", err))
	}
	return nil
}

// newEntry reads an entry. What it refuses no replica of this version can send for: replicas and those that look ask
// it alike.
func newEntry(name, text string) (*entry, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	read, err := readRecord(text)
	if err != nil {
		return nil, err
	}
	e := &entry{name: name, text: text, record: *read, last: -1}
	if e.when, err = e.timing(name); err == nil {
		e.zone, err = e.record.zone()
	}
	if err == nil {
		if _, err = entryOptions(e.Options.Options()); err != nil {
			err = fmt.Errorf("%w: %w", ErrBadEntry, err)
		}
	}
	return e, err
}

// changesField has a line for each of the last changes: which it was, as the version of the hash counts them, and the
// name.
const changesField = "\x00changes"

// changedSince are the names of the entries that were changed from one version of the hash to another, by the text of
// changesField; false if it does not say so.
func changedSince(from, to, changes string) (names []string, known bool) {
	a, aBorn := readVersion(from)
	b, bBorn := readVersion(to)
	if a == 0 || aBorn != bBorn || b <= a {
		return nil, false
	}
	want := a + 1
	for line := range strings.Lines(changes) {
		count, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if n, err := strconv.ParseInt(count, 10, 64); err == nil && n == want && n <= b {
			names, want = append(names, name), want+1
		}
	}
	return names, want > b
}

// readVersion reads the text that each change replaces: how many there were, and since when they are counted; 0 if it
// says something else.
func readVersion(text string) (changes int64, born string) {
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return 0, ""
	}
	changes, _ = strconv.ParseInt(parts[1], 10, 64)
	return max(changes, 0), parts[2]
}

// namesByShard are the names of entries whose sequences lie in each shard.
func namesByShard(set *shard.Set, names []string) [][]string {
	by := make([][]string, len(set.All))
	for _, name := range names {
		i := set.Named(sequenceOf(name))
		by[i] = append(by[i], name)
	}
	return by
}

// lasts are the numbers at which the sequences of entries are that lie in one shard, by the names of the entries; 0:
// there is none. They are read by the page as long as that is cheaper than one by one. limit is how long one call may
// take; 0: as long as ctx.
func (l *looker) lasts(ctx context.Context, of *script.Store, names []string,
	limit time.Duration) (map[string]int64, error) {
	lasts, left := make(map[string]int64, len(names)), make(map[string]bool, len(names))
	for _, name := range names {
		left[name] = true
	}
	cursor := "0"
	for range len(names) / 50 {
		page, err := within(ctx, limit, func(ctx context.Context) (script.SequencesReply, error) {
			return link.Read(ctx, func(ctx context.Context) (script.SequencesReply, error) {
				return of.Sequences(ctx, "", cursor)
			})
		})
		if err != nil {
			return nil, fmt.Errorf("sequences: %w", of.InShard(err))
		}
		for _, q := range page.Found {
			if name, ours := strings.CutPrefix(q.Name, sequenceOf("")); ours && left[name] {
				delete(left, name)
				lasts[name] = q.Last
			}
		}
		if cursor = page.Cursor; cursor == "0" { // the others have none
			return lasts, nil
		}
	}
	var mu sync.Mutex
	rest := make([]string, 0, len(left))
	for name := range left {
		rest = append(rest, name)
	}
	return lasts, side(rest, func(name string) error {
		n, err := within(ctx, limit, func(ctx context.Context) (int64, error) {
			return l.monitor.Sequence(ctx, sequenceOf(name))
		})
		if errors.Is(err, delayqueue.ErrNotFound) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		lasts[name] = n
		return err
	})
}
