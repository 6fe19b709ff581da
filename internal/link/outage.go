package link

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// An Outage logs the beginning and the end of a time without Redis, once each, whichever call to whichever shard
// notices, because one node has many shards. It is safe for concurrent use.
type Outage struct {
	Log *slog.Logger

	mu      sync.Mutex         // guards the fields below
	worked  map[kind]time.Time // with the instant of its last answer
	failing map[kind]failing
	since   time.Time // beginning of the outage that is in the log; zero: there is none
}

// A kind of calls goes to one shard; "": the queue has no other.
type kind struct{ call, shard string }

// failing says when attempts at one kind of call began to fail, and when the last attempt failed, and with what.
type failing struct {
	since, last time.Time
	err         error
}

// forgetAfter is how long after its last failed attempt a kind of call does not count any more. A call is tried again
// within about a second; a send that was given up leaves it unknown whether Redis has been back since.
const forgetAfter = time.Minute

// OutageAfter is how long a kind of call fails before that is an outage: a pool may hold a dead connection or two.
const OutageAfter = 150 * time.Millisecond

// Cause is the last error while a kind of call to this shard fails, and nil while all work.
func (o *Outage) Cause(shard string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var last failing
	for k, f := range o.failing {
		if k.shard == shard && f.last.After(last.last) {
			last = f
		}
	}
	return last.err
}

// Report notes the result of an attempt at a call. begun is when that attempt began.
func (o *Outage) Report(call, shard string, begun time.Time, err error) {
	level, text, attrs := o.note(kind{call, shard}, begun, err)
	if text != "" {
		o.Log.LogAttrs(context.Background(), level, text, attrs...) // not under mu: it is the user's
	}
}

// note notes the result, and returns what to log. A text of "" means nothing.
func (o *Outage) note(k kind, begun time.Time, err error) (level slog.Level, text string, attrs []slog.Attr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.worked == nil {
		o.worked, o.failing = make(map[kind]time.Time), make(map[kind]failing)
	}
	maps.DeleteFunc(o.failing, func(_ kind, f failing) bool { return time.Since(f.last) > forgetAfter })
	if err == nil {
		o.worked[k] = time.Now()
		delete(o.failing, k)
		if len(o.failing) == 0 && !o.since.IsZero() {
			text, attrs = "delayqueue: working with Redis again", []slog.Attr{slog.Duration("outage", time.Since(o.since))}
			o.since = time.Time{}
		}
		return slog.LevelInfo, text, attrs
	}
	if begun.Before(o.worked[k]) {
		return level, "", nil // another attempt has got through since
	}
	f, ok := o.failing[k]
	if !ok {
		f.since = begun
	}
	f.last, f.err = time.Now(), err
	o.failing[k] = f
	if o.since.IsZero() && time.Since(f.since) >= OutageAfter {
		o.since = f.since
		if k.shard != "" {
			k.call += ", " + k.shard
		}
		text = "delayqueue: cannot work with Redis, will go on trying"
		attrs = []slog.Attr{slog.String("call", k.call), slog.Any("error", err)}
	}
	return slog.LevelError, text, attrs
}
