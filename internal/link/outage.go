package link

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// An Outage logs the beginning and the end of a time without Redis, once each, whichever call notices. It is safe for
// concurrent use.
type Outage struct {
	Log    *slog.Logger
	Shard  string  // of the calls; "": the queue has no other
	Shared *Outage // has the log, of all shards, because one node has many; nil: this one has it

	mu      sync.Mutex           // guards the fields below
	worked  map[string]time.Time // kinds of calls, each with the instant of its last answer
	failing map[string]failing   // kinds of calls that fail
	since   time.Time            // beginning of the outage that is in the log; zero: there is none
	last    error                // of the attempt that failed last
}

// failing says when attempts at one kind of call began to fail, and when the last attempt failed.
type failing struct{ since, last time.Time }

// forgetAfter is how long after its last failed attempt a kind of call does not count any more. A call is tried again
// within about a second; a send that was given up leaves it unknown whether Redis has been back since.
const forgetAfter = time.Minute

// OutageAfter is how long a kind of call fails before that is an outage: a pool may hold a dead connection or two.
const OutageAfter = 150 * time.Millisecond

// Cause is the last error while a kind of call fails, and nil while all work.
func (o *Outage) Cause() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failing) == 0 {
		return nil
	}
	return o.last
}

// Report notes the result of an attempt at a call. begun is when that attempt began.
func (o *Outage) Report(call string, begun time.Time, err error) {
	level, text, attrs := o.note(call, begun, err)
	switch {
	case o.Shared != nil:
		o.Shared.Report(call+", "+o.Shard, begun, err)
	case text != "":
		o.Log.LogAttrs(context.Background(), level, text, attrs...) // not under mu: it is the user's
	}
}

// note notes the result, and returns what to log. A text of "" means nothing.
func (o *Outage) note(call string, begun time.Time, err error) (level slog.Level, text string, attrs []slog.Attr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.worked == nil {
		o.worked, o.failing = make(map[string]time.Time), make(map[string]failing)
	}
	maps.DeleteFunc(o.failing, func(_ string, f failing) bool { return time.Since(f.last) > forgetAfter })
	if err == nil {
		o.worked[call] = time.Now()
		delete(o.failing, call)
		if len(o.failing) == 0 && !o.since.IsZero() {
			text, attrs = "delayqueue: working with Redis again", []slog.Attr{slog.Duration("outage", time.Since(o.since))}
			o.since = time.Time{}
		}
		return slog.LevelInfo, text, attrs
	}
	if begun.Before(o.worked[call]) {
		return level, "", nil // another attempt has got through since
	}
	o.last = err
	f, ok := o.failing[call]
	if !ok {
		f.since = begun
	}
	f.last = time.Now()
	o.failing[call] = f
	if o.since.IsZero() && time.Since(f.since) >= OutageAfter {
		o.since = f.since
		text, attrs = "delayqueue: cannot work with Redis, will go on trying", []slog.Attr{slog.String("call", call), slog.Any("error", err)}
	}
	return slog.LevelError, text, attrs
}
