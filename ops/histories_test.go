package ops

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// A history is what was done to each message, as a hook of the clients sees it.
type history struct {
	mu    sync.Mutex
	began time.Time
	calls map[string]*recorded
	over  bool                             // no more calls are noted
	deeds map[string][]porcupine.Operation // by id

	sums   []sum
	counts map[string][]porcupine.Operation // by id of a sum
	voided int                              // acks that would count, and were void

	deliveries atomic.Int64

	carriedOut func(caller string) string // what the server has saved of the caller's last call; nil: it is not asked
}

func (h *history) now() int64 { return h.began.UnixMicro() + time.Since(h.began).Microseconds() }

func (h *history) add(id string, from, to int64, d deed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deeds[id] = append(h.deeds[id], porcupine.Operation{Input: d, Call: from, Return: to})
}

func (h *history) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *history) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return queuetest.EachOf(h.ProcessHook, next)
}

func (h *history) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		name := scriptOf(cmd)
		if name == "" {
			return next(ctx, cmd)
		}
		from := h.now()
		err := next(ctx, cmd)
		to := h.now()
		var args []string
		for _, arg := range cmd.Args()[3+cmd.Args()[2].(int):] {
			if p, ok := arg.(*string); ok {
				arg = *p
			}
			args = append(args, fmt.Sprint(arg))
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.over {
			return err
		}
		call := strings.Join(args[:2], " ") // caller and number
		if name == "extend" || name == "keep" {
			call = strconv.Itoa(len(h.calls))
		}
		c := h.calls[call]
		if c == nil {
			c = &recorded{name: name, args: args, first: from}
			h.calls[call] = c
		}
		c.first = min(c.first, from)
		c.tries++
		var refused redis.Error
		if err == nil {
			c.reply, c.last = replyOf(cmd), max(c.last, to)
		} else if c.refused = errors.As(err, &refused); !c.refused {
			c.lost = true
			h.askWhen(c)
		}
		return err
	}
}

// end has no more calls noted, and says when that was: attempts that were given up may outlast their consumers.
func (h *history) end() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	return h.now()
}

// askWhen asks the server when it carried out a call that it has not answered, with h.mu held. It may still do so later.
func (h *history) askWhen(c *recorded) {
	if h.carriedOut == nil || c.name == "extend" || c.name == "keep" || c.at != 0 {
		return
	}
	if words := strings.Fields(h.carriedOut(c.args[0])); len(words) > 1 && words[0] == c.args[1] {
		c.at, _ = strconv.ParseInt(words[1], 10, 64)
	}
}

// handler handles messages in all ways, as their numbers say. It tells slow of some that outlast a lease.
func (h *history) handler(f *face.Fixture, lease time.Duration, slow chan<- string) delayqueue.Handler {
	return func(ctx context.Context, msg *delayqueue.Message) error {
		h.deliveries.Add(1)
		f.Must(delayqueue.SetResult(ctx, strconv.Itoa(msg.Delivery)))
		n, _ := strconv.Atoi(msg.Payload)
		isSlow := n%40 == 1 && msg.Delivery == 1
		if n%20 == 1 { // nobody cancels it
			select {
			case slow <- msg.ID: // it is waited for, at whatever delivery
				isSlow = true
			default:
			}
		}
		switch {
		case strings.HasPrefix(msg.Key, batchKey) && msg.Delivery < 3: // acks go on to count
			return delayqueue.Snooze(100 * time.Millisecond)
		case isSlow:
			f.Must(delayqueue.Then(ctx, "follows what is void", delayqueue.WithRetention(time.Hour)))
			select {
			case <-time.After(2 * lease):
			case <-ctx.Done():
			}
		case n%10 == 2:
			return queuetest.ErrBoom
		case n%10 == 3 && msg.Delivery < 3:
			return delayqueue.Snooze(10 * time.Millisecond)
		case n%10 == 1:
			return delayqueue.Then(ctx, "follows "+msg.Payload, delayqueue.WithRetention(time.Hour))
		case n%10 == 5:
			return gathers(ctx, n)
		}
		return closes(ctx, n)
	}
}

// sends sends messages, and cancels some, until over is closed; it returns the IDs.
func (h *history) sends(f *face.Fixture, over <-chan struct{}) (sent []string) {
	ctx, q, m := context.Background(), f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for n := 0; ; n++ {
		for wait := true; wait; wait = int64(n) > h.deliveries.Load()+1000 { // a slow machine handles fewer than it sends
			select {
			case <-over:
				return sent
			case <-pace.C:
			}
		}
		if n%20 == 0 {
			h.opens(f, q, n/20)
		}
		if n%10 == 7 {
			h.looks(f, m)
		}
		from := h.now()
		opts := []delayqueue.MsgOption{delayqueue.WithDelay(rand.N(histLease).Truncate(time.Millisecond))} // less is taken for a slip
		if n%3 == 0 || n%40 == 1 {
			opts = append(opts, delayqueue.WithRetention(time.Hour))
		}
		if batch, in := batchOf(n); in {
			opts = append(opts, delayqueue.WithCounts(keyOf(batch)))
		}
		info, err := q.Send(ctx, strconv.Itoa(n), opts...)
		if err != nil {
			f.T.Error(err)
			return sent
		}
		h.add(info.ID, from, h.now(), deed{what: didSend})
		sent = append(sent, info.ID)
		if n%10 == 4 {
			some := max(0, n-rand.IntN(200))
			if some%20 == 1 {
				some--
			}
			id := sent[some]
			from = h.now()
			result, err := q.Cancel(ctx, id)
			if err != nil {
				f.T.Error(err)
				return sent
			}
			h.add(id, from, h.now(), deed{what: didIntercept, state: script.StateWords[result.State]})
		}
	}
}

// TestHistories runs consumers with short leases on lines that lose replies and break, and wants
// what was done to each message, by whom and when, to be a possible life of one: a delivery is held
// by one consumer as long as its lease, one settlement of it counts, and what was accepted is
// delivered until it is acked, intercepted or in garbage, and what follows it is sent if and only if it is acked. Such an ack counts once
// for a message with a countdown, which comes with the last of them, or at its own instant.
func TestHistories(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := face.New(t)
	h := &history{began: time.Now(), calls: map[string]*recorded{}, deeds: map[string][]porcupine.Operation{}, counts: map[string][]porcupine.Operation{}}
	lines := []*histLine{h.connect(f), h.connect(f), h.connect(f)}
	for _, l := range lines {
		l.q.StartConsume()
	}

	var sent []string
	over, senders := make(chan struct{}), sync.WaitGroup{}
	stopSending := sync.OnceFunc(func() { close(over); senders.Wait() })
	defer stopSending()
	senders.Go(func() { sent = h.sends(f, over) })

	for _, l := range lines {
		for _, sha := range []string{script.FetchScript.SHA, script.SettleScript.SHA, script.ExtendScript.SHA} {
			queuetest.Receive(t, "a reply is lost", l.DropReply(redistest.Script(sha)))
		}
	}
	for range 2 {
		lines[0].comesBack(f)
	}
	queuetest.Receive(t, "it handles something slow", lines[1].slow)
	lines[1].Cut() // for good, as if it were killed
	lines = append(lines, h.connect(f))
	lines[3].q.StartConsume()
	stopSending()
	queuetest.Reaches(t, "all is handled", 0, func() int { return -h.waitsStill(f.Check()) })
	h.endSums(f)
	for _, l := range lines {
		if err := l.q.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}

	for _, s := range h.sums {
		sent = append(sent, s.id)
	}
	h.judge(f, sent, histLease)
}
