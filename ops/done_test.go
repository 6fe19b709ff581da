package ops

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

func monitorSeesDone(f *face.Fixture, m *Queue) {
	q := f.Queue(nil).WithHandler(face.Echo).WithConcurrent(4)
	q.StartConsume()
	ctx := queuetest.WithTimeout(f.T)
	var ids []string
	for i := range 5 {
		r, err := q.Call(ctx, fmt.Sprint("m", i), delayqueue.WithKey(fmt.Sprint("k", i)),
			delayqueue.WithRetention(time.Duration(i+1)*time.Hour))
		f.Must(err)
		ids = append(ids, r.ID)
	}
	n, err := m.Counts(queuetest.CtxB)
	if err != nil || n != (Counts{Counts: delayqueue.Counts{Done: 5}, BooksSince: n.BooksSince}) {
		f.T.Errorf("%+v, %v", n, err)
	}
	var listed []string
	for msg, err := range m.All(queuetest.CtxB, delayqueue.StateDone, Filter{Limit: 2}) {
		f.Must(err)
		if listed = append(listed, msg.ID); msg.State != delayqueue.StateDone || msg.Result != "" ||
			msg.At.Sub(msg.EndedAt) != time.Duration(len(listed))*time.Hour {
			f.T.Errorf("%+v", msg)
		}
	}
	if fmt.Sprint(listed) != fmt.Sprint(ids) {
		f.T.Errorf("listed %v, want %v", listed, ids)
	}
	if page, err := m.List(queuetest.CtxB, delayqueue.StateDone, Filter{Key: "k3", To: time.Now().Add(5 * time.Hour)},
		""); err != nil ||
		len(page.Messages) != 1 || page.Messages[0].ID != ids[3] {
		f.T.Errorf("%+v, %v", page, err)
	}
	if _, err := m.GetKey(queuetest.CtxB, "k0"); !errors.Is(err, delayqueue.ErrNotFound) {
		f.T.Errorf("by its key: %v", err)
	}
	for what, err := range map[string]error{"run now": m.RunNow(queuetest.CtxB, ids[0]),
		"reschedule": m.Reschedule(queuetest.CtxB, ids[0], time.Now()),
		"requeue":    m.Requeue(queuetest.CtxB, ids[0])} {
		var state *delayqueue.StateError
		if !errors.As(err, &state) || state.State != delayqueue.StateDone {
			f.T.Errorf("%s: %v", what, err)
		}
	}
	if r, err := m.Cancel(queuetest.CtxB, ids[0]); err != nil ||
		*r != (delayqueue.InterceptResult{State: delayqueue.StateDone, ID: ids[0]}) {
		f.T.Errorf("cancel: %+v, %v", r, err)
	}
	f.Must(m.Delete(queuetest.CtxB, ids[0]))
	if _, err := m.Get(queuetest.CtxB, ids[0]); !errors.Is(err, delayqueue.ErrNotFound) {
		f.T.Errorf("deleted: %v", err)
	}
	got, err := m.BulkDelete(queuetest.CtxB,
		Bulk{States: []delayqueue.State{delayqueue.StateDone}, Filter: Filter{Contains: "m2"}})
	bulked(f, "delete", got, err, 4, 1, nil)
	if _, err := m.BulkRequeue(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateDone}}); !errors.Is(err,
		delayqueue.ErrBadOption) {
		f.T.Errorf("requeue: %v", err)
	}
	got, err = m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateDone}})
	bulked(f, "delete all", got, err, 3, 3, nil)
	f.CheckEmpty()
}
