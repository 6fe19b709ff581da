package produce

import (
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestSpreadOutage: a shard that answers does not end the outage of another one. The log has the begin and the end once.
func TestSpreadOutage(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	server := redistest.Start(t)
	b := newBatcher(f, f.Cli)
	shards := []*script.Store{b.Store, script.NewStore(server.Client(t), "dq", f.Name)}
	shards[0].Shard, shards[1].Shard = "shard 1 of 2", "shard 2 of 2"
	b.Spread(shards, func(i int) int { return i * 512 }, &link.Outage{Log: f.Logger()})
	send := func() {
		if m := sendTo(queuetest.CtxB, b, "x")[0]; m.Stored != StoredYes || m.Err != nil {
			t.Errorf("a send: %d, %v", m.Stored, m.Err)
		}
	}
	send()
	send()
	b.mu.Lock()
	b.turn = 0
	b.mu.Unlock()
	said := func(text string) int { return strings.Count(f.Log.String(), text) }
	const begin, end = "cannot work with Redis", "working with Redis again"

	server.Pause()
	send() // in turn to the first shard
	waits := make(chan struct{})
	go func() { send(); close(waits) }()
	queuetest.Eventually(t, "the log says that Redis is away", func() bool { return said(begin) > 0 })
	for range 3 {
		send()
	}
	if n := said(end); n > 0 {
		t.Errorf("the log says %d times that Redis is back, while a shard is away", n)
	}
	server.Resume()
	<-waits
	queuetest.Eventually(t, "the log says that Redis is back", func() bool { return said(end) > 0 })
	if n := said(begin); n != 1 {
		t.Errorf("the log says %d times that Redis is away", n)
	}
	nothingWaits(t, b)
}
