package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestKinds: two consumers handle messages of three kinds, one of which fails.
func TestKinds(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	var both sync.WaitGroup
	both.Add(2)
	var queues []*delayqueue.DelayQueue
	for range 2 {
		once := sync.OnceFunc(func() { both.Done(); both.Wait() }) // so that each has some
		q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			once()
			switch msg.Headers["type"] {
			case "ship":
				return errors.New("no")
			case "mail":
				if msg.Failures == 0 && msg.Delivery == 1 {
					return delayqueue.Snooze(time.Millisecond)
				}
			}
			return nil
		}).WithKindHeader("type")
		queues = append(queues, q)
	}
	for i := range 12 {
		kind := []string{"ship", "mail", "bill"}[i%3]
		f.Send(queues[0], "x", delayqueue.WithHeader("type", kind), delayqueue.WithRetryCount(0))
	}
	f.Send(queues[0], "without")
	for _, q := range queues {
		q.StartConsume()
	}
	var got []Kind
	queuetest.Eventually(t, "all is counted", func() bool {
		alive, err := m.Consumers(queuetest.CtxB)
		got = KindsOf(alive)
		n := int64(0)
		for _, k := range got {
			n += k.Handled
		}
		if n == 17 && (len(alive) != 2 || len(alive[0].Kinds) == 0 || len(alive[1].Kinds) == 0) {
			t.Errorf("not of two consumers: %+v", alive)
		}
		return err == nil && n == 17
	})
	if said, want := tellKinds(got), "ship 4 4, mail 8 0, bill 4 0,  1 0"; said != want {
		t.Errorf("%s, want %s", said, want)
	}
	for _, k := range got {
		if k.Header != "type" || k.P50 < time.Millisecond || k.P95 < k.P50 {
			t.Errorf("%+v", k)
		}
	}
	for _, q := range queues {
		f.Must(q.Shutdown(queuetest.CtxB))
	}
}

func tellKinds(all []Kind) string {
	var said []string
	for _, k := range all {
		name := k.Name
		if k.Other {
			name = "(other)"
		}
		said = append(said, fmt.Sprint(name, " ", k.Handled, " ", k.Failed))
	}
	return strings.Join(said, ", ")
}

// TestKindsOfEntries: what entries say is added up, bounded, and not believed.
func TestKindsOfEntries(t *testing.T) {
	now := time.Now().UnixMicro()
	entry := func(id, kinds string) Consumer {
		c, alive := consumerOf(id, fmt.Sprintf(`%d 10000000 {"kind_header":"kind","kinds":[%s]}`, now, kinds), now)
		if !alive {
			t.Fatal(id, " is not alive")
		}
		return c
	}
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf(`{"kind":"k%02d","n":1,"took":[1]}`, i))
	}
	a := entry("a", strings.Join(many, ",")+`,{"kind":"k39","failed":1,"took":[0,1]},{"kind":"x","other":true,"took":[3]}`)
	b := entry("b", strings.ReplaceAll(strings.Join(many, ","), `:"k`, `:"l`)+
		`,{"kind":"k39","failed":1,"took":[0,0,0,98]}`)
	got := KindsOf([]Consumer{a, b})
	if len(got) != 51 || tellKinds(got[:2]) != "k39 100 2, k00 1 0" || tellKinds(got[50:]) != "(other) 33 0" {
		t.Errorf("%s", tellKinds(got))
	}
	if got[0].P50 != 8*time.Millisecond || got[1].P50 != time.Millisecond || got[50].P95 != time.Millisecond {
		t.Errorf("%+v, %+v, %+v", got[0], got[1], got[50])
	}
	rubbish := entry("c", `{"took":[-5]},{"failed":9,"took":[1`+strings.Repeat(",0", 20)+`,9223372036854775807,7]}`)
	if k := rubbish.Kinds; len(k) != 1 || k[0].Handled != most+1 || k[0].Failed != 9 || k[0].P95 != time.Millisecond<<21 {
		t.Errorf("%+v", k)
	}
}
