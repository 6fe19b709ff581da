package features

import (
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestCallersOfTheProcess: publishers that are made for one send each use the callers of others.
func TestCallersOfTheProcess(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	n := testkit.Size(1000, 200)
	for range n {
		f.Must(delayqueue.NewPublisher(f.Name, f.Cli).SendDelayMsg("x", time.Hour))
	}
	callers := 0
	for field := range f.Check().Fields {
		if strings.HasPrefix(field, "call:") {
			callers++
		}
	}
	if callers > n/2 { // other tests take some from time to time
		t.Errorf("%d publishers had %d callers", n, callers)
	}
}
