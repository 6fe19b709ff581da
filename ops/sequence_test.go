package ops

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestSequenceOnAFullServer: nothing is stored and no number passed, by a send of one as by one of many.
func TestSequenceOnAFullServer(t *testing.T) {
	t.Parallel()
	f, server := face.OnDefaults(t)
	admin := server.Client(t)
	calls := face.UnderWay(t, f.Cli)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	f.Send(q, "before", face.InAnHour, delayqueue.WithSequence("s", 1))
	f.Must(admin.ConfigSet(queuetest.CtxB, "maxmemory", "1").Err())
	_, err := q.Send(f.UntilSendsFail(), "full", face.InAnHour, delayqueue.WithSequence("s", 2))
	if err == nil || !strings.Contains(err.Error(), "OOM") || face.Fate(f, err) != delayqueue.StoredNo {
		t.Errorf("%v, want OOM and not stored", err)
	}
	queuetest.Eventually(t, "nothing is in flight", func() bool { return calls.Load() == 0 })
	f.Must(m.DropSequence(queuetest.CtxB, "s"))
	f.Must(admin.ConfigSet(queuetest.CtxB, "maxmemory", "0").Err())
	if s := f.Check(); len(s.Pending) != 1 || len(s.Sequences) != 0 {
		t.Errorf("%s", s.Dump())
	}
	f.Send(q, "after", face.InAnHour, delayqueue.WithSequence("s", 2))
}

// TestMonitorSequences: each can be looked at, listed and dropped.
func TestMonitorSequences(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	if _, err := m.Sequences(queuetest.CtxB, ""); !errors.Is(err, delayqueue.ErrNoQueue) {
		t.Errorf("no queue: %v", err)
	}
	if _, err := m.Sequence(queuetest.CtxB, "s"); !errors.Is(err, delayqueue.ErrNoQueue) {
		t.Errorf("no queue: %v", err)
	}
	f.Send(q, "x", face.InAnHour)
	if page, err := m.Sequences(queuetest.CtxB, ""); err != nil || len(page.Sequences) != 0 || page.Next != "" {
		t.Errorf("none: %+v, %v", page, err)
	}
	const n = 600
	want := map[string]int64{}
	for i := range int64(n) {
		name := fmt.Sprint("name ", i)
		want[name] = i - 300
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("sequence"), name, message.SequenceDigits(i-300)).Err())
	}
	got, pages := map[string]int64{}, 0
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		page, err := m.Sequences(queuetest.CtxB, cursor)
		f.Must(err)
		for _, s := range page.Sequences {
			got[s.Name] = s.Last
		}
		cursor = page.Next
	}
	if !maps.Equal(got, want) || pages < 2 {
		t.Errorf("%d of %d on %d pages", len(got), n, pages)
	}
	if last, err := m.Sequence(queuetest.CtxB, "name 5"); err != nil || last != -295 {
		t.Errorf("%d, %v", last, err)
	}
	f.Must(m.DropSequence(queuetest.CtxB, "name 5"))
	_, err := m.Sequence(queuetest.CtxB, "name 5")
	for what, err := range map[string]error{"dropped": err, "dropped again": m.DropSequence(queuetest.CtxB, "name 5"),
		"a bad name": m.DropSequence(queuetest.CtxB, "")} {
		if !errors.Is(err, delayqueue.ErrNotFound) || errors.Is(err, delayqueue.ErrNoQueue) || !strings.Contains(err.Error(), f.Name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, cursor := range []string{"x", "MTI", "IngiIA"} { // no JSON, no text, no number
		if _, err := m.Sequences(queuetest.CtxB, cursor); !errors.Is(err, ErrBadCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	f.Must(m.DeleteQueue(queuetest.CtxB, false))
	f.Send(q, "x", face.InAnHour, delayqueue.WithSequence("name 7", -1000))
}

// TestPassSequence: a sequence passes numbers without a message.
func TestPassSequence(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	if _, err := m.PassSequence(queuetest.CtxB, "s", 5); !errors.Is(err, delayqueue.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	if before, err := m.PassSequence(queuetest.CtxB, "s", 7); before != 5 || err != nil {
		t.Errorf("it was at %d, %v", before, err)
	}
	_, err := delayqueue.NewPublisher(f.Name, f.Cli).Send(queuetest.CtxB, "x", delayqueue.WithSequence("s", 7))
	face.Passed(f, err, "s", 7)
	if _, err := m.PassSequence(queuetest.CtxB, "", 7); !errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("without a name: %v", err)
	}
}
