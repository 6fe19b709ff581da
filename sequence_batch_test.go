package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestSequenceInBatch: the messages of a SendBatch must rise, in each sequence; those that do not are refused alone.
func TestSequenceInBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	numbered := func(name string, n int64) Outgoing {
		return Outgoing{Payload: fmt.Sprint(name, n), Options: []MsgOption{inAnHour, WithSequence(name, n)}}
	}
	got, err := q.SendBatch(ctxB, []Outgoing{numbered("s", 1), {Payload: "plain", Options: []MsgOption{inAnHour}}, numbered("t", -5),
		numbered("s", 1), numbered("s", 3), numbered("s", 2), numbered("t", 5)})
	for i, r := range got {
		if want := i == 3 || i == 5; (r.Err != nil) != want || want && (!errors.Is(r.Err, ErrBadOption) || r.Info != nil) {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	if !errors.Is(err, ErrBadOption) || !strings.Contains(err.Error(), `WithSequence("s", 2): number 3 stands before it`) {
		t.Errorf("%v", err)
	}
	if n := len(f.check().Pending); n != 5 {
		t.Errorf("%d are stored", n)
	}
	for name, option := range map[string]MsgOption{"no name": WithSequence("", 1), "a long name": WithSequence(strings.Repeat("x", 513), 1)} {
		if _, err := q.Send(ctxB, "x", option); !errors.Is(err, ErrBadOption) || !strings.Contains(err.Error(), "WithSequence") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.send(q, "a name of 512 bytes", inAnHour, WithSequence(strings.Repeat("\xff", 512), 1))
}

// TestSequenceStops: what stands behind a message that is not stored, in the same SendBatch and the same sequence, is not
// stored either, and all of it may be sent again.
func TestSequenceStops(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t, "--proto-max-bulk-len", "1mb")
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: hearsRefusals})
	t.Cleanup(func() { _ = cli.Close() })
	q := f.queueOn(cli, nil)
	f.send(q, "taken", inAnHour, WithKey("k"))
	for name, row := range map[string]struct {
		bad     []MsgOption // of number 2
		payload string
		err     error // nil: the server's
	}{
		"its key is taken":              {[]MsgOption{WithKey("k")}, "x", ErrDuplicateKey},
		"a bad option behind":           {[]MsgOption{WithRetryCount(-1)}, "x", ErrBadOption},
		"it has no key for a hold":      {[]MsgOption{WithKeyHold(time.Hour)}, "x", ErrBadOption},
		"the server does not take that": {nil, strings.Repeat("x", 2<<20), nil},
	} {
		numbered := func(n int64, payload string, opts ...MsgOption) Outgoing {
			return Outgoing{Payload: payload, Options: append(opts[:len(opts):len(opts)], inAnHour, WithSequence(name, n))}
		}
		batch := []Outgoing{numbered(1, "x"), numbered(2, row.payload, row.bad...), numbered(3, "x"), numbered(1, "falls"),
			{Payload: "plain", Options: []MsgOption{inAnHour}}, numbered(5, "x"), numbered(6, "x", WithRetryCount(-1)), numbered(7, "x")}
		for i := range int64(maxPut) { // in another call to Redis
			batch = append(batch, numbered(8+i, "x"))
		}
		got, err := q.SendBatch(ctxB, batch)
		for i, r := range got {
			var stopped *SequenceStoppedError
			is := errors.As(r.Err, &stopped)
			switch {
			case i == 0 || i == 4:
				if r.Err != nil {
					t.Errorf("%s: message %d: %v", name, i, r.Err)
				}
			case i == 1 || i == 3 || i == 6:
				if r.Err == nil || is || f.fate(r.Err) == StoredYes ||
					i == 1 && row.err != nil && (!errors.Is(r.Err, row.err) || f.fate(r.Err) != StoredNo) {
					t.Errorf("%s: message %d: %v", name, i, r.Err)
				}
			case !is || !errors.Is(r.Err, ErrSequenceStopped) || f.fate(r.Err) != StoredNo || stopped.At != 2 || stopped.Name != name ||
				stopped.Queue != f.name || stopped.N < 3:
				t.Errorf("%s: message %d: %v", name, i, r.Err)
			}
		}
		if want := fmt.Sprintf("sequence %q: 2 stands before 3", name); !errors.Is(err, ErrSequenceStopped) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		batch[1], batch[6] = numbered(2, "x"), numbered(6, "x")
		got, _ = q.SendBatch(ctxB, append(batch[:3:3], batch[5:]...))
		f.passed(got[0].Err, name, 1)
		for i, r := range got[1:] {
			if r.Err != nil {
				t.Errorf("%s: sent again, message %d: %v", name, i+1, r.Err)
			}
		}
	}
	if n := len(f.check().Pending); n != 1+4*(8-1+maxPut) {
		t.Errorf("%d are stored", n)
	}
	f.nothingWaits(&q.batcher)
}

// TestSequenceBatchRelays: relays that send the same rows in batches, in which now and then one is refused, for its key or
// an option, a reply is lost, or the context ends: each begins anew behind the last number, and each row is one message.
func TestSequenceBatchRelays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const relays, rows = 5, 600
	f.send(f.queue(nil), "taken", inAnHour, WithKey("taken"))
	var wg sync.WaitGroup
	var lost, stopped, ended atomic.Int64
	for i := range relays {
		cli, monitor := f.client(), NewMonitor(f.name, f.cli)
		loseReplies(t, cli, 5+int64(i), &lost)
		p := NewPublisher(f.name, cli)
		wg.Go(func() {
			for try := 0; ; try++ {
				last, err := monitor.Sequence(ctxB, "rows")
				if err != nil && !errors.Is(err, ErrNotFound) || last == rows {
					if err != nil {
						t.Error(err)
					}
					return
				}
				var batch []Outgoing
				for row := last + 1; row <= min(last+2*maxPut+50, rows); row++ {
					options := []MsgOption{inAnHour, WithSequence("rows", row)}
					if at := row % 40; try%3 != 2 && at == int64(i) {
						options = append(options, WithKey("taken"))
					} else if try%3 != 2 && at == 20+int64(i) {
						options = append([]MsgOption{WithRetryCount(-1)}, options...)
					}
					batch = append(batch, Outgoing{strconv.FormatInt(row, 10), options})
				}
				ctx, cancel := context.WithCancel(ctxB)
				if try%4 == 1 {
					ctx, cancel = context.WithTimeout(ctxB, time.Duration((try-1)%7)*time.Millisecond)
				}
				_, err = p.SendBatch(ctx, batch)
				cancel()
				if errors.Is(err, ErrSequenceStopped) {
					stopped.Add(1)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					ended.Add(1)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, m := range f.check().Messages {
		if seen[m.Payload]++; seen[m.Payload] > 1 {
			t.Errorf("%s is there %d times", m.Payload, seen[m.Payload])
		}
	}
	if len(seen) != rows+1 || lost.Load() == 0 || stopped.Load() == 0 || ended.Load() == 0 {
		t.Errorf("%d rows of %d; %d replies were lost, %d batches stopped, %d contexts ended", len(seen)-1, rows, lost.Load(),
			stopped.Load(), ended.Load())
	}
}
