package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/message"
)

// Pause stops all hand-outs until Resume. A message that was handed out before and waits for a worker is handled, or
// goes back after 100 ms. Handlers that run go on, and sends are accepted.
func (m *Queue) Pause(ctx context.Context) error { return m.pause(ctx, message.Forever) }

// PauseUntil is Pause until t, which is compared with the server's clock. It returns ErrBadOption if t is not after
// the server's now, because that would end a pause.
func (m *Queue) PauseUntil(ctx context.Context, t time.Time) error {
	w, err := message.Scheduled(t)
	if err != nil {
		return m.failed(err, "pause")
	}
	return m.pause(ctx, max(w.Us, 1)) // 0 is Resume
}

// PauseFor is Pause for the duration d, by the server's clock. It returns ErrBadOption if d is less than 1ms.
func (m *Queue) PauseFor(ctx context.Context, d time.Duration) error {
	err := message.ValidDelay("pause", d)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%w: a pause of %v", delayqueue.ErrBadOption, d)
	}
	var until int64
	if err == nil {
		until, err = m.store.PauseFor(ctx, &m.calls, d.Microseconds(), m.who.by, m.who.why)
	}
	return m.paused(ctx, until, err)
}

// Resume ends a pause.
func (m *Queue) Resume(ctx context.Context) error { return m.pause(ctx, 0) }

func (m *Queue) pause(ctx context.Context, until int64) error {
	return m.paused(ctx, until, m.store.Pause(ctx, &m.calls, until, m.who.by, m.who.why))
}

// paused publishes a pause until that instant, or its end, and writes the entry of the journal.
func (m *Queue) paused(ctx context.Context, until int64, err error) error {
	code, r := delayqueue.PausedEvent, journalRecord{Act: journal.Pause}
	switch until {
	case 0:
		code, r.Act = delayqueue.ResumedEvent, journal.Resume
	case message.Forever:
	default:
		r.Detail = "until " + instantText(message.InstantTime(until))
	}
	if err == nil || partly(err) != "" {
		m.tell(code, 0)
		m.done(ctx, r.partly(err))
	}
	return m.failed(err, "%s", r.Act)
}
