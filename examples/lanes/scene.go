package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

const (
	queueName = "example-lanes"
	workers   = 16
	pace      = 20 * time.Millisecond // between two messages without a lane
)

// A lane is what the program saw of one. Numbers of messages are from 0.
type lane struct {
	name     string
	width    int
	messages int
	bad      int // the number of the message that fails, so often:
	fails    int

	is      []state // of each message
	order   []int   // the numbers, as messages were started the first time
	busy    int     // messages that are handled now
	most    int     // at a time
	handled int
	retried int
}

type state int

const (
	waits state = iota
	runs
	retries // it failed, and waits for its retry
	handled
)

// A scene is the queue and its lanes.
type scene struct {
	queue   *delayqueue.DelayQueue
	monitor *ops.Queue
	work    time.Duration
	begun   time.Time

	mu     sync.Mutex // guards what follows
	lanes  []*lane
	others int           // messages without a lane that were handled
	worst  time.Duration // how late one of them was
}

func newScene(cli redis.UniversalClient, work time.Duration, backlog int) *scene {
	s := &scene{work: work, monitor: ops.Of(delayqueue.NewMonitor(queueName, cli)), lanes: []*lane{
		{name: "alice", width: 1, messages: 20},
		{name: "bob", width: 1, messages: 20, bad: 4, fails: 2},
		{name: "carol", width: 1, messages: 20},
		{name: "acme", width: 5, messages: backlog},
	}}
	for _, l := range s.lanes {
		l.is = make([]state, l.messages)
	}
	s.queue = delayqueue.NewQueue(queueName, cli,
		nil).WithHandler(s.handle).WithConcurrent(workers).WithRetryDelays(10 * work)
	return s
}

// send sends the messages of all lanes at once. The messages of a lane are due at the same time, so their order is
// that of the batch.
func (s *scene) send(ctx context.Context) error {
	var batch []delayqueue.Outgoing
	for _, l := range s.lanes {
		for n := range l.messages {
			options := []delayqueue.MsgOption{delayqueue.WithLane(l.name, l.width)}
			batch = append(batch, delayqueue.Outgoing{Payload: strconv.Itoa(n), Options: options})
		}
	}
	s.begun = time.Now()
	if _, err := s.queue.SendBatch(ctx, batch); err != nil {
		return fmt.Errorf("cannot send: %w", err)
	}
	return nil
}

// sendOthers sends messages without a lane until ctx ends.
func (s *scene) sendOthers(ctx context.Context) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := s.queue.Send(ctx, "no lane"); err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot send: %w", err)
		}
	}
}

var errBusy = errors.New("the customer's own service is busy")

func (s *scene) handle(ctx context.Context, msg *delayqueue.Message) error {
	l := s.lane(msg.Lane)
	if l == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.others++
		s.worst = max(s.worst, time.Since(msg.Due))
		return nil
	}
	n, err := strconv.Atoi(msg.Payload)
	if err != nil || n < 0 || n >= l.messages {
		return fmt.Errorf("%w: %q is no number of a message", delayqueue.ErrSkipRetry, msg.Payload)
	}
	s.starts(l, n, msg.Failures)
	err = s.works(ctx)
	if err == nil && n == l.bad && msg.Failures < l.fails {
		err = errBusy
	}
	s.ends(l, n, err)
	return err
}

// lane is the lane with a name, nil for none.
func (s *scene) lane(name string) *lane {
	i := slices.IndexFunc(s.lanes, func(l *lane) bool { return l.name == name })
	if i < 0 {
		return nil
	}
	return s.lanes[i]
}

// works stands for the work.
func (s *scene) works(ctx context.Context) error {
	select {
	case <-time.After(s.work):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *scene) starts(l *lane, n, failures int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.is[n] = runs; failures == 0 {
		l.order = append(l.order, n)
	} else {
		l.retried++
	}
	l.busy++
	l.most = max(l.most, l.busy)
}

func (s *scene) ends(l *lane, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.busy--
	if err != nil {
		l.is[n] = retries
		return
	}
	l.is[n] = handled
	l.handled++
}

// over says whether all messages of lanes are handled.
func (s *scene) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.handled < l.messages })
}

// summary says of each lane whether its messages were handled as they are to be.
func (s *scene) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, l := range s.lanes {
		fmt.Fprintf(&b, "%-7s  %4d handled, at most %d at a time, %d retries", l.name, l.handled, l.most, l.retried)
		if l.width == 1 && slices.IsSorted(l.order) {
			b.WriteString(", in order")
		} else if l.width == 1 {
			fmt.Fprint(&b, ", out of order: ", l.order)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%-7s  %4d handled, at most %.1f ms late\n", "no lane", s.others, float64(s.worst.Microseconds())/1000)
	return b.String()
}

// clear deletes the queue, if there is one.
func (s *scene) clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.monitor.DeleteQueue(ctx, true); err != nil && !errors.Is(err, delayqueue.ErrNoQueue) {
		return fmt.Errorf("cannot delete what is left: %w", err)
	}
	return nil
}
