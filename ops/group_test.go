package ops

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

var ofGroup = delayqueue.WithKey("k", delayqueue.Append)

// TestGroupStatus: a Monitor shows how large a group is, and Get its parts.
func TestGroupStatus(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	var id string
	for _, payload := range []string{"a", "", "ccc"} {
		id = f.Send(q, payload, ofGroup, face.InAnHour).ID
	}
	f.Send(q, "none", face.InAnHour)
	got, err := m.Get(queuetest.CtxB, id)
	f.Must(err)
	if !reflect.DeepEqual(got.Parts, []string{"a", "", "ccc"}) || got.PartCount != 3 || got.PartBytes != 4 ||
		got.Payload != "a" || got.Broken != nil {
		t.Errorf("%+v", got)
	}
	page, err := m.List(queuetest.CtxB, delayqueue.StatePending, Filter{}, "")
	f.Must(err)
	for _, got := range page.Messages {
		if group := got.ID == id; got.Parts != nil || group != (got.PartCount == 3) || group != (got.PartBytes == 4) {
			t.Errorf("%+v", got)
		}
	}
	f.Must(m.Delete(queuetest.CtxB, id))
	if s := f.Check(); len(s.Parts) != 0 {
		t.Errorf("%s", s.Dump())
	}
}

// TestGroupsByKey: calls by key reach the group that takes parts, and then the one that it took the key over from.
func TestGroupsByKey(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	begun, end := make(chan struct{}, 1), make(chan error)
	q.WithRetryDelays(time.Hour).WithHandler(func(context.Context, *delayqueue.Message) error {
		begun <- struct{}{}
		return <-end
	})
	first := f.Send(q, "a", ofGroup)
	q.StartConsume()
	queuetest.Receive(t, "the first group", begun)
	second := f.Send(q, "b", ofGroup, face.InAnHour)
	end <- queuetest.ErrBoom
	queuetest.Eventually(t, "it waits for a retry", func() bool {
		got, err := m.Get(queuetest.CtxB, first.ID)
		return err == nil && got.State == delayqueue.StateRetry
	})
	if got, err := m.GetKey(queuetest.CtxB, "k"); err != nil || got.ID != second.ID || !slices.Equal(got.Earlier, []string{first.ID}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, want := range []delayqueue.InterceptResult{{Intercepted: true, State: delayqueue.StatePending, ID: second.ID}, {Intercepted: true, State: delayqueue.StateRetry, ID: first.ID}, {}} {
		if got, err := q.InterceptKey(queuetest.CtxB, "k"); err != nil || *got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	f.CheckEmpty()
}

// TestGroupRepliesLost: each part is in one group, once, and the parts of one sender are in order, although replies are lost.
func TestGroupRepliesLost(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const senders, each = 6, 150
	var wg sync.WaitGroup
	var lost atomic.Int64
	for i := range senders {
		p := f.LossyPublisher(3+int64(i), &lost)
		wg.Go(func() {
			for n := range each {
				if _, err := p.Send(queuetest.CtxB, fmt.Sprint(i, " ", n), ofGroup, face.InAnHour, delayqueue.WithMaxParts(40)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	var groups [][]string
	for id := range f.Check().Messages {
		got, err := m.Get(queuetest.CtxB, id)
		f.Must(err)
		groups = append(groups, got.Parts)
	}
	if lost.Load() == 0 {
		t.Error("no reply was lost")
	}
	queuetest.PartsOnce(t, groups, senders, each)
}
