package ops

import (
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

func TestReports(t *testing.T) { onSharedServer(t, monitorReports) }

func monitorReports(f *face.Fixture, m *Queue) {
	heard := make(chan delayqueue.Event, 100)
	sub, err := m.ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
	f.Must(err)
	defer sub.Stop()
	other := delayqueue.NewPublisher(f.Name, f.Cli)
	defer other.EnableReport().Stop()
	q := f.Queue(func(string) bool { return true })
	defer q.EnableReport().Stop()
	info, err := other.Send(queuetest.CtxB, "x")
	f.Must(err)
	for _, want := range []delayqueue.EventCode{delayqueue.NewMessageEvent, delayqueue.ReadyEvent, delayqueue.DeliveredEvent, delayqueue.AckEvent} {
		if want == delayqueue.ReadyEvent {
			q.StartConsume()
		}
		if e := queuetest.Receive(f.T, want.String(), heard); e.Code != want || e.Count != 1 || !slices.Equal(e.IDs, []string{info.ID}) ||
			time.Since(e.Time) > queuetest.Patience {
			f.T.Errorf("%+v, want %s", e, want)
		}
	}
}

// TestReportOverAClientOfItsOwnType: a client of the user's own type publishes by its own command.
func TestReportOverAClientOfItsOwnType(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	heard := make(chan delayqueue.Event, 10)
	listener, err := Of(delayqueue.NewMonitor(f.Name, f.Cli)).ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
	f.Must(err)
	defer listener.Stop()
	p := delayqueue.NewPublisher(f.Name, wrapped{f.Cli})
	sub := p.EnableReport()
	defer sub.Stop()
	f.Must(p.SendDelayMsg("x", time.Hour))
	if e := queuetest.Receive(t, "it is heard", heard); e.Code != delayqueue.NewMessageEvent || sub.Dropped() != 0 {
		t.Errorf("%+v, %d dropped", e, sub.Dropped())
	}
}
