package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Messages are sent so long before the first is due, or so many times as long as they take by warm if that is more.
const (
	ahead      = 1500 * time.Millisecond
	aheadTimes = 10
)

// lateness measures handler start minus due of messages at random instants.
func lateness(consumers, n int, over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(senders); err != nil {
			return err
		}
		return t.lateness(t.what.name, t.what.kind, consumers, n, over, 0)
	}
}

// lateness reports under a name; others, not due, stay behind.
func (t *trial) lateness(name string, k kind, consumers, n int, over time.Duration, others int64) error {
	stop, seen, err := t.startLate(consumers, n, over)
	if err != nil {
		return err
	}
	defer stop()
	if err := t.await(seen.tally); err != nil {
		return err
	}
	stop()
	t.report(name, k, seen.figures())
	return t.onlyLeft(others)
}

// lateTally notes when each message was due and how late its handler started.
type lateTally struct {
	*tally
	due  []time.Time
	late []atomic.Int64 // ns
}

func newLateTally(n int) *lateTally {
	return &lateTally{tally: newTally(n), due: make([]time.Time, n), late: make([]atomic.Int64, n)}
}

func (l *lateTally) handle(p string, _ int) {
	now := time.Now()
	if i := indexOf(p); i >= 0 && i < len(l.due) {
		l.late[i].Store(int64(now.Sub(l.due[i])))
	}
	l.mark(p)
}

func (l *lateTally) figures() figures {
	ms := make([]float64, len(l.late))
	for i := range l.late {
		ms[i] = float64(l.late[i].Load()) / 1e6
	}
	slices.Sort(ms)
	n, _ := slices.BinarySearch(ms, 0)
	return figures{lateP50: quantile(ms, 0.5), lateP99: quantile(ms, 0.99), lateMax: quantile(ms, 1), early: float64(n)}
}

// startLate starts consumers, of one worker each, and sends n messages; stop may be called twice.
func (t *trial) startLate(consumers, n int, over time.Duration) (stop func(), seen *lateTally, err error) {
	seen = newLateTally(n)
	var stops []func()
	stop = sync.OnceFunc(func() {
		var wg sync.WaitGroup
		for _, s := range stops {
			wg.Go(s)
		}
		wg.Wait()
	})
	for range consumers {
		one, err := t.sys.consume(1, seen.handle)
		if err != nil {
			stop()
			return nil, nil, err
		}
		stops = append(stops, one)
	}
	if err := t.sendLate(seen, over); err != nil {
		stop()
		return nil, nil, err
	}
	return stop, seen, nil
}

// sendLate sends the messages of a tally for random instants.
func (t *trial) sendLate(seen *lateTally, over time.Duration) error {
	ahead := max(ahead, aheadTimes*t.pace*time.Duration(len(seen.due)))
	first := time.Now().Add(ahead)
	for i := range seen.due {
		// Whole microseconds, as the queue keeps them, and by the wall clock.
		seen.due[i] = first.Add(rand.N(over)).Truncate(time.Microsecond).Round(0)
	}
	err := t.sendAll(senders, len(seen.due), func(i int) message { return message{payload: payload(i), at: seen.due[i]} })
	if err == nil && time.Now().After(first) {
		err = fmt.Errorf("it took longer than %v to send the messages", ahead)
	}
	return err
}

// paced measures the time from a send to its handler at a fixed rate.
func paced(perSecond int, over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(senders); err != nil {
			return err
		}
		if err := t.sendSteadily(t.what.name, perSecond, over, func(int) string { return "" }); err != nil {
			return err
		}
		return t.onlyLeft(0)
	}
}

// sendSteadily sends messages at a fixed rate into the lanes of lane, and reports how late these were, not a backlog.
func (t *trial) sendSteadily(name string, perSecond int, over time.Duration, lane func(i int) string) error {
	n := int(float64(perSecond) * over.Seconds())
	seen := newLateTally(n)
	stop, err := t.sys.consume(senders, func(payload string, _ int) {
		if payload != fillerOfBacklog {
			seen.handle(payload, 0)
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	begun := time.Now()
	err = t.sendAll(senders, n, func(i int) message {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		seen.due[i] = time.Now() // the handler reads it after Redis has had the message
		return message{payload: payload(i), lane: lane(i)}
	})
	if err != nil {
		return err
	}
	if err := t.await(seen.tally); err != nil {
		return err
	}
	t.report(name, t.what.kind, seen.figures())
	return nil
}

// herd measures how many consumers wake for a message when all are idle.
func herd(consumers, perSecond int, over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(senders); err != nil {
			return err
		}
		n := int(float64(perSecond) * over.Seconds())
		stop, seen, err := t.startLate(consumers, n, over)
		if err != nil {
			return err
		}
		defer stop()
		// Counted from here to the last handler, without starting and stopping.
		time.Sleep(time.Until(slices.MinFunc(seen.due, time.Time.Compare)))
		before := t.net.fetches.Load()
		if err := t.await(seen.tally); err != nil {
			return err
		}
		calls := t.net.fetches.Load() - before
		stop()
		if calls == 0 {
			return errNoFetches
		}
		f := seen.figures()
		f[fetches] = float64(calls) / float64(n)
		t.report(t.what.name, t.what.kind, f)
		return t.onlyLeft(0)
	}
}

var errNoFetches = errors.New("no call looks like the library's fetch: is it called in another way?")
