package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// beanstalkdSystem is beanstalkd by its client for Go, whose connections do one thing at a time.
type beanstalkdSystem struct {
	addr string
	idle chan *beanstalk.Conn // of senders
}

const (
	beanstalkdTube     = "default"
	beanstalkdPriority = 1024             // that of beanstalkd's own pages
	beanstalkdTTR      = 10 * time.Minute // more than any handler takes, because none asks for more time
	beanstalkdReserve  = 24 * time.Hour   // until a worker that got nothing asks again
)

func openBeanstalkd(addr string) (system, error) {
	return &beanstalkdSystem{addr: addr, idle: make(chan *beanstalk.Conn, senders)}, nil
}

func (b *beanstalkdSystem) conn() (*beanstalk.Conn, error) {
	select {
	case c := <-b.idle:
		return c, nil
	default:
		return beanstalk.Dial("tcp", b.addr)
	}
}

func (b *beanstalkdSystem) send(_ context.Context, m message) error {
	c, err := b.conn()
	if err != nil {
		return fmt.Errorf("beanstalkd: %w", err)
	}
	// It knows whole seconds. A message must not be early, so they are rounded up.
	delay := max(0, time.Until(m.due()))
	_, err = c.Put([]byte(m.payload), beanstalkdPriority, (delay + time.Second - 1).Truncate(time.Second), beanstalkdTTR)
	if err != nil {
		return errors.Join(fmt.Errorf("beanstalkd: %w", err), c.Close())
	}
	select {
	case b.idle <- c:
	default:
		err = c.Close()
	}
	return err
}

// sendBatch is not in its protocol.
func (b *beanstalkdSystem) sendBatch(context.Context, []message) error { return errors.ErrUnsupported }

func (b *beanstalkdSystem) consume(workers int, handle handler) (func(), error) {
	var all []*beanstalkdWorker
	var running sync.WaitGroup
	stop := func() {
		for _, w := range all {
			w.stop()
		}
		running.Wait()
	}
	for range workers {
		c, err := beanstalk.Dial("tcp", b.addr)
		if err != nil {
			stop()
			return nil, fmt.Errorf("beanstalkd: %w", err)
		}
		w := &beanstalkdWorker{conn: c, handle: handle}
		all = append(all, w)
		running.Go(func() {
			if err := w.run(); err != nil {
				panic(fmt.Sprintf("beanstalkd: %v", err)) // the server has gone: nothing to measure
			}
		})
	}
	return stop, nil
}

// A beanstalkdWorker handles one message after another.
type beanstalkdWorker struct {
	conn    *beanstalk.Conn
	handle  handler
	mu      sync.Mutex // held while it does anything but wait for a message
	stopped bool
}

func (w *beanstalkdWorker) run() error {
	tubes := beanstalk.NewTubeSet(w.conn, beanstalkdTube)
	for {
		id, body, err := tubes.Reserve(beanstalkdReserve)
		if stopped, err := w.got(id, body, err); stopped || err != nil {
			return err
		}
	}
}

func (w *beanstalkdWorker) got(id uint64, body []byte, err error) (stopped bool, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped { // then the connection is closed, which is the error
		return true, nil
	}
	if err != nil {
		return false, err
	}
	w.handle(string(body), unknown)
	return false, w.conn.Delete(id)
}

// stop waits for the message in hand, and closes the connection, because nothing else ends the wait for another one.
func (w *beanstalkdWorker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	_ = w.conn.Close()
}

func (b *beanstalkdSystem) left(context.Context) (int64, error) {
	stats, err := beanstalkdStats(b.addr)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, state := range []string{"ready", "reserved", "delayed", "buried"} {
		n, err := strconv.ParseInt(stats["current-jobs-"+state], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("beanstalkd: stats: %w", err)
		}
		sum += n
	}
	return sum, nil
}

func beanstalkdStats(addr string) (map[string]string, error) {
	c, err := beanstalk.Dial("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("beanstalkd: %w", err)
	}
	defer c.Close()
	return c.Stats()
}

func (b *beanstalkdSystem) close() {
	for {
		select {
		case c := <-b.idle:
			_ = c.Close()
		default:
			return
		}
	}
}
