package ops

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestManyConsumers: 300 with 100 messages each are read a page at a time, each page by one call for some 25; the
// one that handles a message is found, and a look at a message that waits reads none.
func TestManyConsumers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	onServer := server.Client(t)
	f := face.On(t, onServer)
	m := Of(delayqueue.NewMonitor(f.Name, onServer))
	waits := f.Send(f.Queue(nil), "waits", face.InAnHour)
	held := f.Send(f.Queue(nil), "held")
	if got, err := f.Calls().Fetch(queuetest.CtxB, &script.Caller{ID: "c", N: 1},
		script.FetchRequest{Want: 1, Settings: &script.FetchSettings{Lease: time.Hour, MaxLosses: 3}}); err != nil || len(got.Tags) != 1 {
		t.Fatalf("%v, %v", got.Tags, err)
	}
	now := time.Now().UnixMicro()
	for i := range 300 {
		said := script.Presence{Concurrency: 100}
		for j := range 100 {
			said.Handling = append(said.Handling, script.HandledMessage{ID: fmt.Sprintf("%036d", j)})
		}
		if i == 123 {
			said.Handling[50].ID = held.ID
		}
		text, err := json.Marshal(said)
		f.Must(err)
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("consumers"), fmt.Sprint(i), fmt.Sprintf("%d 3600000000 %s", now, text)).Err())
	}
	var alive []Consumer
	spent := queuetest.Commands(t, queuetest.RedisClient(t, server.Addr()), func() {
		var err error
		alive, err = m.Consumers(queuetest.CtxB)
		f.Must(err)
	})
	if calls := spent["hscan"]; len(alive) != 300 || calls < 6 || calls > 60 {
		t.Errorf("%d consumers in %d pages: %v", len(alive), calls, spent)
	}
	if status, err := m.Get(queuetest.CtxB, held.ID); err != nil || status.State != delayqueue.StateUnack || status.Consumer != "123" {
		t.Errorf("%+v, %v", status, err)
	}
	spent = queuetest.Commands(t, queuetest.RedisClient(t, server.Addr()), func() {
		if status, err := m.Get(queuetest.CtxB, waits.ID); err != nil || status.State != delayqueue.StatePending {
			t.Errorf("%+v, %v", status, err)
		}
		if err := m.DeleteQueue(queuetest.CtxB, false); err == nil || !strings.Contains(err.Error(), ErrConsumersAlive.Error()) {
			t.Errorf("DeleteQueue: %v", err)
		}
	})
	if spent["hscan"] > 30 || spent["unlink"] > 0 { // until it has read 1 MB
		t.Errorf("DeleteQueue: %v", spent)
	}
}

// TestProtocolConsumer: the consumer's entry that docs/PROTOCOL.md shows is read.
func TestProtocolConsumer(t *testing.T) {
	if c, alive := consumerOf("c", queuetest.ProtocolExample(t, "consumer"), 1790000000000000); !alive || c.Host != "web-3" || len(c.Handling) != 1 {
		t.Errorf("the consumer is %+v, %v", c, alive)
	}
}
