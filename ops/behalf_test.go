package ops

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestOneLine: what people say is kept as one line of valid text, however long it is and whatever it holds.
func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "ann": "ann", " a\nb\r\tc\x00 ": "a b  c", "\xffa": "\uFFFDa", "12345678": "12345678", "123456789": "12345678",
		"1234567é": "1234567", "a\u2028b\u0085c": "a b c", strings.Repeat("x", 1000): "xxxxxxxx", "\n\n\n\n\n\n\n\n\n\n": "",
	} {
		if got := script.OneLine(text, 8); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	m := new(Queue).WithOperator(strings.Repeat("é", 500)).WithReason(strings.Repeat("世", 1000))
	if by, why := m.who.by, m.who.why; len(by) > script.MaxBy || len(by) < script.MaxBy-3 || len(why) > script.MaxWhy ||
		len(why) < script.MaxWhy-3 || !utf8.ValidString(by+why) {
		t.Errorf("%d bytes by whom, %d why", len(by), len(why))
	}
}

// TestPauseReason: a Monitor's pause says on whose behalf it was made.
func TestPauseReason(t *testing.T) {
	f, m := newQueue(t)
	begun := time.Now().Add(-time.Minute)
	f.Send(f.Queue(nil), "x", face.InAnHour)
	f.Must(m.WithOperator("ann\n").WithReason("deploy").PauseUntil(queuetest.CtxB, time.Now().Add(time.Hour)))
	n, err := m.Counts(queuetest.CtxB)
	if err != nil || n.PausedBy != "ann" || n.PauseReason != "deploy" || n.PausedSince.Before(begun) || n.PausedUntil.IsZero() {
		t.Errorf("%+v, %v", n, err)
	}
	f.Must(m.Resume(queuetest.CtxB))
	if n, err := m.Counts(queuetest.CtxB); err != nil || n.Paused || n.PausedBy != "" || n.PauseReason != "" || !n.PausedSince.IsZero() {
		t.Errorf("resumed: %+v, %v", n, err)
	}
}

// TestPauseFor: a pause of so long is in the journal, and one of no length is refused.
func TestPauseFor(t *testing.T) {
	f, m := newQueue(t)
	f.Send(f.Queue(nil), "a", face.InAnHour)
	for _, bad := range []time.Duration{0, -time.Second, 30, message.MaxDelay + 1} {
		if err := m.PauseFor(queuetest.CtxB, bad); !errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("for %d: %v", bad, err)
		}
	}
	f.Must(m.PauseFor(queuetest.CtxB, time.Hour))
	n, err := m.Counts(queuetest.CtxB)
	f.Must(err)
	if all := journalIn(f, m); !n.Paused || len(all) != 1 || all[0].Detail != "until "+instantText(n.PausedUntil) {
		t.Errorf("%+v, %+v", n, all)
	}
	f.Must(m.Resume(queuetest.CtxB))
}
