package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// wrapped is a client of the user's own type.
type wrapped struct{ redis.UniversalClient }

// TestRing: a ring would strand accepted messages on the wrong server.
func TestRing(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": queuetest.Shared.Addr()}})
	defer ring.Close()
	for name, make := range map[string]func(){
		"NewQueue":               func() { delayqueue.NewQueue("q", ring, nil) },
		"NewPublisher":           func() { delayqueue.NewPublisher("q", ring) },
		"NewMonitor":             func() { delayqueue.NewMonitor("q", ring) },
		"in a wrapper, NewQueue": func() { delayqueue.NewQueue("q", struct{ *redis.Ring }{ring}, nil) },
		"deeper, NewPublisher":   func() { delayqueue.NewPublisher("q", &struct{ wrapped }{wrapped{ring}}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				_, call, wrapped := strings.Cut(name, ", ")
				if !wrapped {
					call = name
				}
				if text := fmt.Sprint(recover()); !strings.Contains(text, call) || !strings.Contains(text, "use one server, Sentinel or a Cluster") {
					t.Errorf("panics with %q", text)
				}
			}()
			make()
		})
	}
	for _, err := range Queues(context.Background(), ring) {
		if !errors.Is(err, link.ErrRing) {
			t.Errorf("Queues: %v", err)
		}
	}
}
