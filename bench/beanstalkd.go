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
	beanstalkdTTR      = 60 * time.Second // as of pheanstalk and greenstalk
	beanstalkdLook     = time.Second      // how often an idle worker looks whether it shall end
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
	stopped := make(chan struct{})
	var running sync.WaitGroup
	stop := sync.OnceFunc(func() {
		close(stopped)
		running.Wait()
	})
	for range workers {
		c, err := beanstalk.Dial("tcp", b.addr)
		if err != nil {
			stop()
			return nil, fmt.Errorf("beanstalkd: %w", err)
		}
		running.Go(func() {
			defer c.Close()
			if err := beanstalkdWork(c, stopped, handle); err != nil {
				panic(fmt.Sprintf("beanstalkd: %v", err)) // the server has gone: nothing to measure
			}
		})
	}
	return stop, nil
}

// beanstalkdWork handles one message after another.
func beanstalkdWork(c *beanstalk.Conn, stopped <-chan struct{}, handle handler) error {
	tubes := beanstalk.NewTubeSet(c, beanstalkdTube)
	for {
		select {
		case <-stopped:
			return nil
		default:
		}
		id, body, err := tubes.Reserve(beanstalkdLook)
		if errors.Is(err, beanstalk.ErrTimeout) {
			continue
		}
		if err != nil {
			return err
		}
		handle(string(body), 0) // it counts no retries
		if err := c.Delete(id); err != nil {
			return err
		}
	}
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
