package ops

import (
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
)

// unhurriedMonitor is a Monitor none of whose attempts is given up and repeated because the machine is slow: the hooks of tests count
// them, and are not made for two at a time.
func unhurriedMonitor(name string, cli redis.UniversalClient) *Queue {
	m := Of(delayqueue.NewMonitor(name, cli))
	m.store.AttemptTimeout = time.Hour
	return m
}
