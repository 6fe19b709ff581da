package features

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestServerIsFull: at maxclients queues go on over the connections that they have, dial now and then, and leave
// the next place to whoever wants it.
func TestServerIsFull(t *testing.T) {
	t.Parallel()
	const queues, places = 60, 8
	f, server := face.OwnServer(t, "--maxclients", fmt.Sprint(places))
	f.Must(f.Cli.Ping(queuetest.CtxB).Err()) // it has one of them
	got := make(chan string, 4*queues)
	begun := time.Now()
	cli := queuetest.RedisClient(t, server.Addr())
	waiting, release := face.WaitingFor(cli)
	defer release()
	all := tenants(f, cli, queues, func(name string) { got <- name })
	queuetest.Reaches(t, "all wait", queues, waiting)
	for _, q := range all {
		f.Send(q, "x", delayqueue.WithDelay(10*time.Millisecond))
	}
	for range all {
		queuetest.Receive(t, "it is handled before the first tick", got)
	}
	dials := f.InfoNumber("stats", "rejected_connections:%d")
	// Where the machine is slow, attempts end in vain, and each consumer may have its line dial anew. Queues that did not share
	// their backoff would dial some 400 times in the first second.
	if most := 4*queues + 100*int(1+time.Since(begun)/time.Second); dials == 0 || dials > most {
		t.Errorf("the server has refused %d connections, want some, and at most %d", dials, most)
	}
	f.Must(f.Cli.ConfigSet(queuetest.CtxB, "maxclients", fmt.Sprint(places+places)).Err())
	for range 3 {
		stranger := queuetest.RedisClient(t, server.Addr())
		queuetest.Eventually(t, "a stranger gets in", func() bool { return stranger.Ping(queuetest.CtxB).Err() == nil })
	}
}
