package observe

import (
	"context"
	"errors"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
)

// This file counts as lost what was in a queue that Redis has no more, though nobody has deleted the queue. A queue
// that somebody consumes says so by itself, because its consumers note a loss. If somebody has deleted the queue, the
// reading says that.

// A past is what is known of a queue from earlier readings.
type past struct {
	here       int64     // messages that were in it
	seen, gone time.Time // when it was last there, and since when it is not; zero: it is there
}

const (
	goneFor  = 3 * time.Second  // DeleteQueue writes its entry of the journal two seconds after it, at most
	goneKept = 15 * time.Minute // for which a loss is reported although the queue is there again, with others
	newest   = 20               // entries of the journal, of which one may be that of DeleteQueue
)

// noteGone adds to a reading what was lost with the queue, or that the queue was deleted.
func (q *Queues) noteGone(ctx context.Context, one *queue, r *Reading, there bool) {
	now := time.Now()
	q.mu.Lock()
	p := &one.past
	switch since := now.Sub(p.gone); {
	case !there && p.gone.IsZero():
		p.gone = now
	case there && (p.here == 0 || since < goneFor || since > goneKept || r.Counts.LossMessages > 0):
		n := r.Counts
		*p = past{here: n.Pending + n.Ready + n.Waiting + n.Unack + n.Retry + n.Garbage + n.Done, seen: now}
	}
	was := *p
	q.mu.Unlock()
	if was.gone.IsZero() {
		return
	}
	deleted, err := one.deletedSince(ctx, now.Sub(was.seen))
	switch {
	case err != nil: // this user may not read the journal, or Redis is slow
	case deleted:
		r.Deleted = !there
		q.mu.Lock()
		p.here = 0 // also when the journal is gone
		q.mu.Unlock()
	case now.Sub(was.gone) >= goneFor:
		r.Counts.LossMessages = was.here
	}
}

// deletedSince says whether somebody has deleted the queue since it was last there, so long ago.
func (one *queue) deletedSince(ctx context.Context, long time.Duration) (bool, error) {
	page, err := one.monitor.Journal(ctx, newest, "")
	if errors.Is(err, delayqueue.ErrNoQueue) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range page.Entries {
		if e.Act == journal.DeleteQueue && page.Now.Sub(e.At)-goneFor < long {
			return true, nil
		}
	}
	return false, nil
}
