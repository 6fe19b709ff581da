package ops

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestSupersededIsSeen: while its handler runs, a look says that a message is superseded, and finds the new one by the key. If it is
// kept, a look says later whether it was acked.
func TestSupersededIsSeen(t *testing.T) {
	t.Parallel()
	for _, well := range []bool{false, true} {
		t.Run(fmt.Sprint("acked ", well), func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			m, begun, end := Of(delayqueue.NewMonitor(f.Name, f.Cli)), make(chan struct{}), make(chan struct{})
			q := f.Queue(nil).WithHandler(func(context.Context, *delayqueue.Message) error {
				close(begun)
				<-end
				if well {
					return nil
				}
				return queuetest.ErrBoom
			})
			old := f.Send(q, "old", delayqueue.WithKey("k"), delayqueue.WithRetention(time.Hour))
			q.StartConsume()
			queuetest.Receive(t, "the first delivery", begun)
			renewed := f.Send(q, "new", delayqueue.WithKey("k", delayqueue.Replace), face.InAnHour)
			if got, err := m.Get(queuetest.CtxB, old.ID); err != nil || !got.Superseded || got.Key != "k" || got.State != delayqueue.StateUnack || !got.EndedAt.IsZero() {
				t.Errorf("%+v, %v", got, err)
			}
			if got, err := m.GetKey(queuetest.CtxB, "k"); err != nil || got.Superseded || got.ID != renewed.ID {
				t.Errorf("%+v, %v", got, err)
			}
			close(end)
			last := ""
			if !well {
				last = "boom"
				queuetest.Eventually(t, "it is counted", func() bool {
					days, err := m.History(queuetest.CtxB, Daily, 2)
					return err == nil && days[0].Superseded+days[1].Superseded == 1 && days[0].Failed+days[1].Failed == 1 &&
						days[0].Garbage+days[1].Garbage+days[0].Acked+days[1].Acked == 0
				})
			}
			queuetest.Eventually(t, "it is done", func() bool { return f.Where(old.ID) == "done" })
			if s := statusInQueue(f, m, old.ID); s.State != delayqueue.StateDone || s.Superseded == well || s.LastError != last {
				t.Errorf("%+v", s)
			}
		})
	}
}
