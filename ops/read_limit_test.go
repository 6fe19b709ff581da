package ops

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestReadLimit: a key finds what is large, and a call for many does it too.
func TestReadLimit(t *testing.T) { onSharedServer(t, readsWithin) }

func readsWithin(f *face.Fixture, m *Queue) {
	m.WithReadLimit(10_000)
	large := f.Send(f.Queue(nil), strings.Repeat("x", 20_000), face.InAnHour, delayqueue.WithKey("k")).ID
	for what, get := range map[string]func() (*MessageStatus, error){
		"id": func() (*MessageStatus, error) { return m.Get(queuetest.CtxB, large) }, "key": func() (*MessageStatus, error) { return m.GetKey(queuetest.CtxB, "k") },
	} {
		if got, err := get(); err != nil || got.ID != large || got.Payload != "" || !errors.Is(got.Broken, ErrNotRead) {
			f.T.Errorf("by %s: %+v, %v", what, got, err)
		}
	}
	if page, err := m.List(queuetest.CtxB, delayqueue.StatePending, Filter{}, ""); err != nil || len(page.Messages) != 1 ||
		!errors.Is(page.Messages[0].Broken, ErrNotRead) {
		f.T.Errorf("%+v, %v", page, err)
	}
	got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StatePending}})
	bulked(f, "delete", got, err, 1, 1, nil)
	f.CheckEmpty()
}
