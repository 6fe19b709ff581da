package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"
)

// A worker is a process that sends and handles messages by one contender. So what it costs is measured apart from the
// bench, a contender need not be in Go, and a process can be killed. It takes orders from standard input, a line of
// JSON each, answers each by a line, and ends with its input. bullmq/worker.mjs is another one.

// An order is what a worker is to do.
//
//   - hello: nothing.
//   - send: N messages, or for Seconds, by so many Callers, one message each; or if there are none, in batches of 500.
//   - fill: N messages, as fast as it can.
//   - drain: handle N messages that are there.
//   - late: handle N messages that become due at random instants within Seconds, the first of them Ahead from now.
//   - begin: start a consumer for N messages, whose handlers take Takes ms and then add the message's number and the ms
//     since 1970 to the file Note, if there is one. If Hold, they do not end, and the answer comes when they have all.
//   - await: wait for the N messages of begin.
//   - left: how many messages the server holds that are not done.
type order struct {
	Do       string  `json:"do"`
	N        int     `json:"n"`
	Callers  int     `json:"callers"`
	Workers  int     `json:"workers"`
	Seconds  float64 `json:"seconds"`
	Ahead    float64 `json:"ahead"`    // seconds
	Patience float64 `json:"patience"` // seconds until it is given up
	Due      due     `json:"due"`
	Hold     bool    `json:"hold"`
	Takes    float64 `json:"takes"` // ms
	Note     string  `json:"note"`
}

// A due says when messages are due: at once, in two seconds, in an hour, or at random within the day after that.
type due string

const (
	dueNow  due = "now"
	dueSoon due = "soon"
	dueHour due = "hour"
	dueDay  due = "day"
)

// An answer is what came of an order.
type answer struct {
	Error       string    `json:"error,omitempty"`
	Unsupported bool      `json:"unsupported,omitempty"` // there is no such thing
	N           int       `json:"n"`                     // messages that were sent, came, or are left
	Seconds     float64   `json:"seconds"`
	Ms          []float64 `json:"ms,omitempty"` // late: how late each was; await: when each came, since 1970
	Twice       int       `json:"twice"`        // came more than once
	Charged     int       `json:"charged"`      // retries that were charged to a message, at most; -1: unknown
}

// beWorker takes orders until the input ends.
func beWorker(ctx context.Context, sys system, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{sys: sys, stop: func() {}}
	defer func() {
		cancel()
		w.stop()
	}()
	orders, answers := make(chan order), json.NewEncoder(out)
	var unread error
	go func() { // in the middle of an order, too: a bench that was killed says nothing
		defer cancel()
		defer close(orders)
		unread = readOrders(ctx, in, orders)
	}()
	for o := range orders {
		a, err := w.carryOut(ctx, o)
		if errors.Is(err, errors.ErrUnsupported) {
			a = answer{Unsupported: true}
		} else if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := answers.Encode(a); err != nil {
			return fmt.Errorf("an answer: %w", err)
		}
	}
	return unread
}

func readOrders(ctx context.Context, in io.Reader, to chan<- order) error {
	for decoder := json.NewDecoder(in); ; {
		var o order
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("an order: %w", err)
		}
		select {
		case to <- o:
		case <-ctx.Done():
			return nil
		}
	}
}

type worker struct {
	sys  system
	held *arrivals // of begin
	stop func()    // ends its consumer
}

func (w *worker) carryOut(ctx context.Context, o order) (answer, error) {
	switch o.Do {
	case "hello":
		return answer{}, nil
	case "send":
		return w.sendFor(ctx, o)
	case "fill":
		return answer{N: o.N}, w.fill(ctx, o)
	case "drain":
		return w.drain(ctx, o)
	case "late":
		return w.late(ctx, o)
	case "begin":
		return answer{}, w.begin(ctx, o)
	case "await":
		came := w.held.await(ctx, o.Patience)
		return answer{N: len(came), Ms: came, Twice: int(w.held.twice.Load()), Charged: int(w.held.charged.Load())}, nil
	case "left":
		n, err := w.sys.left(ctx)
		return answer{N: int(n)}, err
	}
	return answer{}, fmt.Errorf("no order is called %q", o.Do)
}

// message i, which is due then.
func (d due) message(i int) message {
	m := message{payload: payload(i)}
	switch d {
	case dueSoon:
		m.delay = 2 * time.Second
	case dueHour:
		m.delay = time.Hour
	case dueDay:
		m.at = time.Now().Add(time.Hour + rand.N(horizon))
	}
	return m
}

func (w *worker) sendFor(ctx context.Context, o order) (answer, error) {
	begun := time.Now()
	end := begun.Add(time.Duration(o.Seconds * float64(time.Second)))
	over := func(i int) bool { return i >= o.N && !time.Now().Before(end) }
	var n atomic.Int64
	var err error
	if o.Callers > 0 {
		err = eachOf(ctx, o.Callers, func(i int) (bool, error) {
			if over(i) {
				return false, nil
			}
			n.Add(1)
			return true, w.sys.send(ctx, o.Due.message(i))
		})
	} else {
		for err == nil && !over(int(n.Load())) {
			err = w.sys.sendBatch(ctx, w.batch(int(n.Load()), batchSize, o.Due))
			n.Add(batchSize)
		}
	}
	return answer{N: int(n.Load()), Seconds: time.Since(begun).Seconds()}, err
}

func (w *worker) batch(from, n int, d due) []message {
	batch := make([]message, n)
	for i := range batch {
		batch[i] = d.message(from + i)
	}
	return batch
}

// fill sends in batches by two callers, if there are any.
func (w *worker) fill(ctx context.Context, o order) error {
	err := eachOf(ctx, 2, func(i int) (bool, error) {
		from := i * batchSize
		if from >= o.N {
			return false, nil
		}
		return true, w.sys.sendBatch(ctx, w.batch(from, min(batchSize, o.N-from), o.Due))
	})
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return eachOf(ctx, senders, func(i int) (bool, error) {
		if i >= o.N {
			return false, nil
		}
		return true, w.sys.send(ctx, o.Due.message(i))
	})
}

// arrivals notes when each of n messages came first.
type arrivals struct {
	*tally
	came    []atomic.Int64 // ns since 1970
	charged atomic.Int64
}

func newArrivals(n int) *arrivals {
	a := &arrivals{tally: newTally(n), came: make([]atomic.Int64, n)}
	a.charged.Store(unknown)
	return a
}

func (a *arrivals) handle(p string, charged int) {
	if i := indexOf(p); i >= 0 && i < len(a.came) {
		a.came[i].CompareAndSwap(0, time.Now().UnixNano())
	}
	for most := a.charged.Load(); int64(charged) > most; most = a.charged.Load() {
		if a.charged.CompareAndSwap(most, int64(charged)) {
			break
		}
	}
	a.mark(p)
}

// await waits for all, and returns when those came that did, in ms.
func (a *arrivals) await(ctx context.Context, patience float64) []float64 {
	select {
	case <-a.all:
	case <-ctx.Done():
	case <-time.After(time.Duration(patience * float64(time.Second))):
	}
	var ms []float64
	for i := range a.came {
		if ns := a.came[i].Load(); ns > 0 {
			ms = append(ms, float64(ns)/1e6)
		}
	}
	return ms
}

func (w *worker) drain(ctx context.Context, o order) (answer, error) {
	seen, begun := newArrivals(o.N), time.Now()
	stop, err := w.sys.consume(o.Workers, seen.handle)
	if err != nil {
		return answer{}, err
	}
	n := len(seen.await(ctx, o.Patience))
	took := time.Since(begun)
	stop()
	return answer{N: n, Seconds: took.Seconds(), Twice: int(seen.twice.Load())}, nil
}

func (w *worker) late(ctx context.Context, o order) (answer, error) {
	seen := newArrivals(o.N)
	stop, err := w.sys.consume(o.Workers, seen.handle)
	if err != nil {
		return answer{}, err
	}
	defer stop()
	first := time.Now().Add(time.Duration(o.Ahead * float64(time.Second)))
	at := make([]time.Time, o.N)
	for i := range at {
		// Whole microseconds, and by the wall clock.
		at[i] = first.Add(rand.N(time.Duration(o.Seconds * float64(time.Second)))).Truncate(time.Microsecond).Round(0)
	}
	err = eachOf(ctx, senders, func(i int) (bool, error) {
		if i >= o.N {
			return false, nil
		}
		return true, w.sys.send(ctx, message{payload: payload(i), at: at[i]})
	})
	if err == nil && time.Now().After(first) {
		err = fmt.Errorf("it took longer than %.0f s to send the messages", o.Ahead)
	}
	if err != nil {
		return answer{}, err
	}
	seen.await(ctx, o.Ahead+o.Seconds+o.Patience)
	var ms []float64
	for i := range at {
		if ns := seen.came[i].Load(); ns > 0 {
			ms = append(ms, float64(ns-at[i].UnixNano())/1e6)
		}
	}
	return answer{N: len(ms), Ms: ms, Twice: int(seen.twice.Load())}, nil
}

func (w *worker) begin(ctx context.Context, o order) error {
	var note *os.File
	if o.Note != "" {
		var err error
		if note, err = os.Create(o.Note); err != nil {
			return err
		}
	}
	w.stop()
	w.stop = func() {}
	w.held = newArrivals(o.N)
	stop, err := w.sys.consume(o.Workers, func(p string, charged int) {
		w.held.handle(p, charged)
		time.Sleep(time.Duration(o.Takes * float64(time.Millisecond)))
		if note != nil {
			_, _ = fmt.Fprintf(note, noteLine, indexOf(p), time.Now().UnixMilli()) // without it, the message is missed
		}
		if o.Hold {
			<-ctx.Done()
		}
	})
	if err != nil {
		return err
	}
	w.stop = stop
	if !o.Hold {
		return nil
	}
	if came := w.held.await(ctx, o.Patience); len(came) < o.N {
		return fmt.Errorf("the handlers have %d messages of %d after %.0f s", len(came), o.N, o.Patience)
	}
	return nil
}

const noteLine = "%08d %d\n"
