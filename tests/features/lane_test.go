package features

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestLanes: 50 lanes of 40 messages over three consumers: each lane in order, one at a time, also beside failures; and beside each other.
func TestLanes(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const lanes, each = 50, 40
	var mu sync.Mutex
	busy, next, most := map[string]int{}, map[string]int{}, 0
	handle := func(_ context.Context, msg *delayqueue.Message) error {
		n, err := strconv.Atoi(msg.Payload)
		f.Must(err)
		mu.Lock()
		if busy[msg.Lane]++; busy[msg.Lane] > 1 {
			t.Errorf("%d messages of lane %s at a time", busy[msg.Lane], msg.Lane)
		}
		if n != next[msg.Lane] {
			t.Errorf("lane %s: message %d, want %d", msg.Lane, n, next[msg.Lane])
		}
		fails := n%7 == 3 && msg.Delivery < 3
		if !fails {
			next[msg.Lane]++
		}
		most = max(most, len(busy))
		mu.Unlock()
		defer func() {
			mu.Lock()
			if busy[msg.Lane]--; busy[msg.Lane] == 0 {
				delete(busy, msg.Lane)
			}
			mu.Unlock()
		}()
		time.Sleep(100 * time.Microsecond)
		if fails {
			return queuetest.ErrBoom
		}
		return nil
	}
	var queues []*delayqueue.DelayQueue
	for range 3 {
		queues = append(queues, f.Queue(nil).WithHandler(handle).WithConcurrent(8).WithNackRedeliveryDelay(5*time.Millisecond))
	}
	var batch []delayqueue.Outgoing
	for n := range each {
		for lane := range lanes {
			batch = append(batch, delayqueue.Outgoing{Payload: strconv.Itoa(n),
				Options: []delayqueue.MsgOption{delayqueue.WithLane(fmt.Sprint("customer-", lane))}})
		}
	}
	begun := time.Now()
	for _, q := range queues {
		q.StartConsume()
	}
	_, err := queues[0].SendBatch(queuetest.CtxB, batch)
	f.Must(err)
	f.Drained()
	t.Logf("%d messages in %v, at most %d lanes at a time", lanes*each, time.Since(begun), most)
	f.CheckEmpty()
	for lane := range lanes {
		if n := next[fmt.Sprint("customer-", lane)]; n != each {
			t.Errorf("lane %d: %d handled", lane, n)
		}
	}
	if most < 5 {
		t.Errorf("at most %d lanes at a time", most)
	}
}

// TestLaneOptions: what a lane may not be.
func TestLaneOptions(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	for _, bad := range []delayqueue.MsgOption{
		delayqueue.WithLane(""), delayqueue.WithLane("a\x00b"), delayqueue.WithLane(strings.Repeat("x", 201)),
		delayqueue.WithLane("a", 0), delayqueue.WithLane("a", 101), delayqueue.WithLane("a", 1, 2),
	} {
		_, err := f.Queue(nil).Send(queuetest.CtxB, "x", bad)
		if t.Log(err); err == nil || !slices.Contains([]bool{true}, strings.Contains(err.Error(), "WithLane")) {
			t.Errorf("%v", err)
		}
	}
}
