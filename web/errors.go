package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

// The errors of all garbage, or of all retries, in groups. Millions of messages take minutes, so the process that was
// asked counts in the background while somebody looks, and the page says how far it is. No request waits for that.

const (
	errorStep    = 10_000           // messages that are looked at before the page is told
	keepErrors   = 10 * time.Minute // how long a count is kept after the last look
	staleErrors  = time.Minute      // after its end, from when on it is made anew for who opens the page
	groupsListed = 200
	keptErrors   = 20 // counts that are kept, of 8 MB each at most
	mostReaders  = 4  // counts of errors that run in one process, and as many exports
	theirReaders = 2  // of one visitor
)

var (
	errCounts = &httpError{http.StatusServiceUnavailable,
		"Four counts of errors run here already, and no process runs more: wait until one has ended"}
	errExports = &httpError{http.StatusServiceUnavailable,
		"Four downloads run here already, and no process runs more: wait until one has ended"}
	errYours = &httpError{http.StatusTooManyRequests, "Two of yours run here already: wait until one has ended"}
)

// errorCounts are the counts of a process.
type errorCounts struct {
	mu  sync.Mutex
	all map[string]*errorCount // by the queries of selections
}

// An errorCount is how far the errors of a selection are counted.
type errorCount struct {
	ops.ErrorGroups
	At    time.Time // when it began
	Runs  bool
	Ended bool
	err   error
	seen  time.Time // when somebody looked last
	over  time.Time // when it ended
	acted string    // the last act on the queue when it began
}

// An errorList is groups of errors, with the selection that they are of.
type errorList struct {
	*selection
	*ops.ErrorGroups
}

// An errorsPage is what the page of errors shows.
type errorsPage struct {
	Groups  *errorList
	Count   errorCount
	Tabs    []tab
	More    int    // groups that are not listed
	Trouble string // why it does not go on
}

func (h *Handler) errors(ctx context.Context, r *request) (any, error) {
	s, err := r.selection()
	if err != nil {
		return nil, err
	}
	q, err := h.look(ctx, r.Queue)
	if errors.Is(err, errNoQueue) { // anybody can make up a name
		return nil, err
	}
	if err == nil {
		_ = r.part(q.Missing)
	}
	s.State = cmp.Or(s.State, delayqueue.StateGarbage)
	s.query.Set("state", s.State.String())
	if s.Text != "" || s.State != delayqueue.StateGarbage && s.State != delayqueue.StateRetry {
		return nil, errNoPage
	}
	p := &errorsPage{Count: h.errorsOf(r, s, r.lastAct(ctx))}
	if p.Count.err != nil {
		p.Trouble = r.lang.trouble(p.Count.err)
	}
	all := p.Count.ErrorGroups
	shown := min(len(all.Groups), groupsListed)
	for _, one := range all.Groups[shown:] {
		all.Others += one.Count
	}
	p.More, all.Groups = len(all.Groups)-shown, all.Groups[:shown]
	p.Groups = &errorList{s, &all}
	for _, state := range []delayqueue.State{delayqueue.StateGarbage, delayqueue.StateRetry} {
		p.Tabs = append(p.Tabs,
			tab{Name: r.lang.state(state), Link: s.Link("errors", "state", state), Here: state == s.State})
	}
	return p, nil
}

// Stamp names a count in the link that begins it anew. A feed asks by the same link again and again.
func (c *errorCount) Stamp() string { return strconv.FormatInt(c.At.UnixMicro(), 36) }

// lastAct names the last act in the journal, of a job that has ended with its end; "" if that cannot be read, or for a
// feed of an open page.
func (r *request) lastAct(ctx context.Context) string {
	if r.Arg("page") != "" {
		return ""
	}
	ctx, cancel := r.h.soon(ctx)
	defer cancel()
	page, err := r.Monitor().Journal(ctx, 1, "")
	switch {
	case err != nil:
		return ""
	case len(page.Entries) == 0:
		return "none"
	}
	last := &page.Entries[0]
	if last.Bulk == nil || last.Bulk.Phase == journal.Running {
		return last.ID
	}
	return last.ID + " has ended"
}

// errorsOf returns how far the errors are counted, and counts on in the background. Who opens the page gets no count
// that ended long ago, or that began before the last act.
func (h *Handler) errorsOf(r *request, s *selection, acted string) errorCount {
	counts, now, key := &h.errorCounts, time.Now(), s.query.Encode()
	counts.mu.Lock()
	defer counts.mu.Unlock()
	for key, old := range counts.all {
		if !old.Runs && now.Sub(old.seen) > keepErrors {
			delete(counts.all, key)
		}
	}
	one := counts.all[key]
	begin := one == nil || !one.Runs && (r.Arg("again") == one.Stamp() || r.Arg("page") == "" &&
		(acted != "" && acted != one.acted || one.Ended && now.Sub(one.over) > staleErrors))
	if one == nil {
		one = &errorCount{At: now, acted: acted}
		if counts.all == nil {
			counts.all = map[string]*errorCount{}
		}
		counts.room(key)
		counts.all[key] = one
	}
	one.seen = now
	if begin || !one.Runs && !one.Ended {
		who := r.visitor()
		if err := h.readers.enter(who); err != nil {
			if !one.Ended {
				one.err = err
			}
		} else {
			if begin {
				*one = errorCount{At: now, acted: acted, seen: now}
			}
			if one.Runs = true; !errors.Is(one.err, delayqueue.ErrMissingShards) {
				one.err = nil
			}
			go h.countErrors(who, r.Queue, s.State, s.Filter, one)
		}
	}
	out := *one
	out.Groups = append([]ops.ErrorGroup(nil), one.Groups...)
	return out
}

// room lets go of the count that was seen longest ago, if there is none for key and they are many. If it runs, it ends,
// because nobody looks at it.
func (c *errorCounts) room(key string) {
	if c.all[key] != nil || len(c.all) < keptErrors {
		return
	}
	oldest := ""
	for name, one := range c.all {
		if oldest == "" || one.seen.Before(c.all[oldest].seen) {
			oldest = name
		}
	}
	delete(c.all, oldest)
}

// countErrors counts until all was looked at, or nobody looks any more. A later look goes on from there.
func (h *Handler) countErrors(who, queue string, state delayqueue.State, f ops.Filter, one *errorCount) {
	defer h.readers.leave(who)
	defer func() {
		if bad := recover(); bad != nil {
			h.panicked(bad, "errors of queue", queue)
			h.errorCounts.mu.Lock()
			defer h.errorCounts.mu.Unlock()
			one.err, one.Runs, one.Ended = errPanic, false, true
		}
	}()
	f.LatestFirst = true // what is wrong now is seen at once
	for more := true; more; {
		ctx, cancel := h.within(h.done)
		got, err := h.newMonitor(queue).ErrorGroups(ctx, state, f, errorStep, one.Next)
		cancel()
		more = h.noteErrors(one, got, err)
	}
}

// noteErrors adds what a call has counted, and says whether to go on. The shards that answer are counted to the end.
func (h *Handler) noteErrors(one *errorCount, got *ops.ErrorGroups, err error) (more bool) {
	h.errorCounts.mu.Lock()
	defer h.errorCounts.mu.Unlock()
	missing, shards, _ := health.Away(err)
	counted := err == nil || len(missing) < shards
	if counted || got.Next != "" {
		one.Merge(got)
		one.Total = max(one.Total, got.Total)
	}
	one.err, one.Ended, one.over = err, counted && one.Next == "", time.Now()
	one.Runs = counted && !one.Ended && h.done.Err() == nil && time.Since(one.seen) < h.bounds.linger
	return one.Runs
}
