package shift

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

func TestSameFilter(t *testing.T) {
	t.Parallel()
	eight := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	window := func(from, to time.Duration) ops.Filter { return ops.Filter{From: eight.Add(from), To: eight.Add(to)} }
	for name, c := range map[string]struct {
		then, now ops.Filter
		ago       time.Duration
		want      bool
	}{
		"the same instants":        {window(0, time.Hour), window(0, time.Hour), 3 * time.Hour, true},
		"the same durations":       {window(0, time.Hour), window(3*time.Hour, 4*time.Hour), 3*time.Hour + time.Minute, true},
		"another window":           {window(0, time.Hour), window(2*time.Hour, 3*time.Hour), 3 * time.Hour, false},
		"a window beside it":       {window(0, time.Hour), window(time.Hour, 2*time.Hour), 10 * time.Minute, false},
		"no end":                   {window(0, time.Hour), ops.Filter{From: eight}, time.Minute, false},
		"another header":           {ops.Filter{Headers: map[string]string{"a": "b"}}, ops.Filter{}, time.Minute, false},
		"no header, and a nil one": {ops.Filter{Headers: map[string]string{}}, ops.Filter{}, time.Minute, true},
	} {
		if got := sameFilter(c.then, c.now, c.ago); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A call that was cut off counts, unless a later one has come to the end of all that it began.
func TestFind(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	entry := func(phase string, messages int64, ago, by time.Duration, in ...delayqueue.State) ops.JournalEntry {
		return ops.JournalEntry{At: now.Add(-ago), Messages: messages,
			Bulk: &ops.BulkState{Phase: phase, Task: &ops.BulkTask{States: in, By: by}}}
	}
	const pending, retry = delayqueue.StatePending, delayqueue.StateRetry
	cut := entry(journal.Stopped, 7, time.Hour, time.Minute, pending, retry)
	for name, c := range map[string]struct {
		entries []ops.JournalEntry // the last first
		want    bool
	}{
		"none":             {nil, false},
		"cut off":          {[]ops.JournalEntry{{At: now}, cut}, true},
		"failed":           {[]ops.JournalEntry{entry(journal.Failed, 7, time.Hour, time.Minute, retry)}, true},
		"nothing was done": {[]ops.JournalEntry{entry(journal.Stopped, 0, time.Hour, time.Minute, pending)}, false},
		"by another time":  {[]ops.JournalEntry{entry(journal.Stopped, 7, time.Hour, time.Hour, pending)}, false},
		"of another state": {[]ops.JournalEntry{entry(journal.Stopped, 7, time.Hour, time.Minute,
			delayqueue.StateDone)}, false},
		"days ago":              {[]ops.JournalEntry{entry(journal.Stopped, 7, 25*time.Hour, time.Minute, pending)}, false},
		"a later one finished":  {[]ops.JournalEntry{entry(journal.Finished, 9, 0, time.Minute, pending, retry), cut}, false},
		"one state is finished": {[]ops.JournalEntry{entry(journal.Finished, 9, 0, time.Minute, pending), cut}, true},
	} {
		page := &ops.JournalPage{Entries: c.entries, Now: now}
		if got := find(page, &ops.Bulk{States: []delayqueue.State{pending, retry}}, time.Minute); (got != nil) != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
