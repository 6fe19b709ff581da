package ops

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestLastErrors: the last five of seven failures, whatever is in their texts, wherever one looks.
func TestLastErrors(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	long := strings.Repeat("x", 3*message.MaxErrorText)
	texts := []string{"gone", "gone, too", "with\nlines\tand blanks  ", "not UTF-8: \xff", "1 2 \x1e3 4 of another", long + "6", long + "7"}
	deliveries := make(chan int, len(texts)) // that failed: what no worker took in time is released and has another number
	q := f.Queue(nil).WithLease(time.Hour).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, m *delayqueue.Message) error {
		deliveries <- m.Delivery
		return errors.New(texts[m.Failures])
	})
	begun := f.Cli.Time(queuetest.CtxB).Val()
	info := f.Send(q, "work", delayqueue.WithKey("k"), delayqueue.WithRetryCount(6))
	q.StartConsume()
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	queuetest.Eventually(t, "it has died", func() bool { return statusInQueue(f, m, info.ID).State == delayqueue.StateGarbage })
	close(deliveries)
	var failed []int
	for n := range deliveries {
		failed = append(failed, n)
	}
	wants := []string{long[:message.MaxErrorText], long[:200], "1 2  3 4 of another", "not UTF-8: \uFFFD", "with\nlines\tand blanks  "}
	page, err := m.List(queuetest.CtxB, delayqueue.StateGarbage, Filter{Error: "xx"}, "")
	if err != nil || len(page.Messages) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	for _, got := range []*MessageStatus{statusInQueue(f, m, info.ID), page.Messages[0]} {
		if len(got.LastErrors) != len(wants) || got.LastError != wants[0] {
			t.Fatalf("%+v", got)
		}
		last := f.Cli.Time(queuetest.CtxB).Val()
		for i, e := range got.LastErrors {
			if e.Text != wants[i] || e.Delivery != failed[6-i] || e.At.After(last) || e.At.Before(begun) {
				t.Errorf("error %d: %+v", i, e)
			}
			last = e.At
		}
	}
	if page, err := m.List(queuetest.CtxB, delayqueue.StateGarbage, Filter{Error: "another"}, ""); err != nil || len(page.Messages) != 0 { // not the last one
		t.Errorf("%+v, %v", page, err)
	}
}
