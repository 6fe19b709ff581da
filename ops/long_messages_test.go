package ops

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// ofGroup makes a message a part of a group.
var ofGroup = delayqueue.WithKey("k", delayqueue.Append)

// rewriteLong is the least that a script does to change something of a long value of a hash: it reads the value, copies it once to take
// its end, once to put another beginning before that, and writes it.
const rewriteLong = `redis.call('HSET', KEYS[1], 'f', ARGV[1] .. string.sub(redis.call('HGET', KEYS[1], 'f'), 18)) return ''`

// longest is the most of the server's time that one script call took while something was done, the least of so many times.
type longest struct {
	server *redistest.Server
	most   atomic.Int64 // nanoseconds, since it was set to 0; an attempt that was given up ends later
}

func watchScripts(t *testing.T, cli redis.UniversalClient, server *redistest.Server) *longest {
	l := &longest{server: server}
	t.Cleanup(link.Interpose(cli, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		before := server.Busy()
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") {
			took := int64(server.Busy() - before)
			for most := l.most.Load(); took > most && !l.most.CompareAndSwap(most, took); most = l.most.Load() {
			}
		}
		return err
	})))
	return l
}

// of prepares and calls some times, and returns the least of what the longest script took; that is the work, and not what else the
// machine does.
func (l *longest) of(prepare, call func()) time.Duration {
	best := time.Duration(math.MaxInt64)
	for range 5 {
		prepare()
		l.most.Store(0)
		call()
		best = min(best, time.Duration(l.most.Load()))
	}
	return best
}

// plainCosts is the least time of the server that a plain HSET of 1 MB takes, and a script that reads the value, changes its
// beginning and writes it.
func plainCosts(t *testing.T, server *redistest.Server) (plain, rewritten time.Duration) {
	cli, mb := queuetest.RedisClient(t, server.Addr()), strings.Repeat("x", 1<<20)
	must := func(err error) {
		queuetest.Must(t, err)
	}
	plain, rewritten = math.MaxInt64, math.MaxInt64
	for i := range 12 {
		plain = min(plain, queuetest.HeldFor(t, server, "hset", func() { must(cli.HSet(queuetest.CtxB, "plain", "f", mb).Err()) }))
		rewritten = min(rewritten, queuetest.HeldFor(t, server, "eval", func() {
			must(cli.Eval(queuetest.CtxB, rewriteLong, []string{"plain"}, fmt.Sprintf("%017d", i)).Err())
		}))
	}
	must(cli.Del(queuetest.CtxB, "plain").Err())
	return plain, rewritten
}

// TestLongMessagesAreCopiedOnce: what becomes of a message of 1 MB, whatever does it, takes not 5 ms more of the server's time than
// a plain HSET of it, or not much more than a script that reads the value, changes its beginning and writes it. So does one call of
// those for many.
func TestLongMessagesAreCopiedOnce(t *testing.T) {
	f, server := face.OwnServer(t)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	mb, large := strings.Repeat("x", 1<<20), strings.Repeat("x", 900<<10)
	plain, rewritten := plainCosts(t, server)
	f.Send(q, "there is a queue", delayqueue.WithKey("k"))

	l, n := watchScripts(t, f.Cli, server), 1
	later := func() delayqueue.MsgOption { n++; return delayqueue.WithDelay(time.Duration(n) * time.Second) } // another instant each time
	clear := func() {
		for state := delayqueue.StatePending; state != delayqueue.StateGone; {
			got, err := q.CancelKey(queuetest.CtxB, "k")
			f.Must(err)
			state = got.State
		}
	}
	group := func() {
		clear()
		f.Send(q, large, ofGroup, later(), delayqueue.WithMaxWait(time.Hour), delayqueue.WithMsgTTL(time.Hour))
	}
	fill := func(n, size int) func() {
		return func() {
			batch := make([]delayqueue.Outgoing, n)
			for i := range batch {
				batch[i] = delayqueue.Outgoing{Payload: mb[:size], Options: []delayqueue.MsgOption{face.InAnHour}}
			}
			_, err := q.SendBatch(queuetest.CtxB, batch)
			f.Must(err)
		}
	}
	bulk := func(call func(context.Context, Bulk) (*BulkResult, error)) func() {
		return func() {
			_, err := call(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady}})
			f.Must(err)
		}
	}
	full := func(groups, parts, size int) func() {
		return func() {
			for i := range groups {
				batch := make([]delayqueue.Outgoing, parts)
				for j := range batch {
					batch[j] = delayqueue.Outgoing{Payload: mb[:size],
						Options: []delayqueue.MsgOption{delayqueue.WithKey(fmt.Sprint("group", i), delayqueue.Append), face.InAnHour}}
				}
				_, err := q.SendBatch(queuetest.CtxB, batch)
				f.Must(err)
			}
		}
	}
	emptied := func(prepare func()) func() { return func() { bulk(m.BulkDelete)(); prepare() } }
	postpone := bulk(func(ctx context.Context, b Bulk) (*BulkResult, error) { return m.BulkRescheduleBy(ctx, b, time.Minute) })
	replaced := func() {
		clear()
		f.Send(q, mb, delayqueue.WithKey("k", delayqueue.Replace), later(), delayqueue.WithMaxWait(time.Hour), delayqueue.WithMsgTTL(time.Hour))
	}
	for _, c := range []struct {
		name          string
		prepare, call func()
	}{
		{"Reschedule", replaced, func() { f.Send(q, "x", delayqueue.WithKey("k", delayqueue.Reschedule), later()) }},
		{"Replace", replaced, func() {
			f.Send(q, "x", delayqueue.WithKey("k", delayqueue.Replace), later(), delayqueue.WithMaxWait(time.Hour), delayqueue.WithMsgTTL(time.Hour))
		}},
		{"Replace by as much", replaced, func() { f.Send(q, mb, delayqueue.WithKey("k", delayqueue.Replace), later()) }},
		{"Append", group, func() { f.Send(q, "x", ofGroup, later()) }},
		{"Append that says nothing", group, func() { f.Send(q, "x", ofGroup) }},
		{"Append to a group that is full then", group, func() { f.Send(q, "x", ofGroup, delayqueue.WithMaxParts(2)) }},
		{"a Monitor's Reschedule", replaced, func() {
			got, err := m.GetKey(queuetest.CtxB, "k")
			f.Must(err)
			f.Must(m.RescheduleBy(queuetest.CtxB, got.ID, time.Minute))
		}},
		{"a Monitor's Delete", replaced, clear},
		{"BulkDelete of full groups", emptied(full(10, message.MaxParts, 1)), bulk(m.BulkDelete)},
		{"BulkDelete of full groups of 1 MB", emptied(full(2, message.MaxParts, 1000)), bulk(m.BulkDelete)},
		{"BulkDelete of groups of 100 parts", emptied(full(50, 100, 1)), bulk(m.BulkDelete)},
		{"BulkReschedule of 8 KB", emptied(fill(300, 8<<10)), postpone},
		{"BulkReschedule of 100 KB", emptied(fill(20, 100<<10)), postpone},
		{"BulkReschedule of 500 KB", emptied(fill(4, 500<<10)), postpone},
		{"BulkReschedule of 1 MB", emptied(fill(2, 1<<20)), postpone},
	} {
		most := max(rewritten*14/10, plain+5*time.Millisecond) // newer servers copy 1 MB in a third of the time
		took := l.of(c.prepare, c.call)
		for tries := 0; took > most && tries < 5; tries++ { // others use this machine too
			took = min(took, l.of(c.prepare, c.call))
		}
		t.Logf("%s: %v, of which %v beyond a plain HSET; %.2f of a rewrite", c.name, took, took-plain, float64(took)/float64(rewritten))
		if took > most {
			t.Errorf("%s: a script took %v, to read and write 1 MB takes %v, to write it %v", c.name, took, rewritten, plain)
		}
	}
	emptied(func() {})()
}

// TestSendsOntoLongMessages: a batch that takes several calls is answered in full, in order, and the last send of a key wins.
func TestSendsOntoLongMessages(t *testing.T) {
	f := face.New(t)
	q := f.Queue(nil)
	long := strings.Repeat("x", 200<<10)
	var first, batch []delayqueue.Outgoing
	for i := range 6 {
		key := fmt.Sprint("k", i)
		first = append(first, delayqueue.Outgoing{Payload: long, Options: []delayqueue.MsgOption{delayqueue.WithKey(key), delayqueue.WithDelay(time.Hour)}})
		for j := range 3 {
			batch = append(batch, delayqueue.Outgoing{Payload: fmt.Sprint(j, long), Options: []delayqueue.MsgOption{delayqueue.WithKey(key, delayqueue.Replace), delayqueue.WithDelay(time.Duration(j+1) * time.Hour)}})
		}
		batch = append(batch, delayqueue.Outgoing{Payload: "y", Options: []delayqueue.MsgOption{delayqueue.WithKey(key, delayqueue.Reschedule), delayqueue.WithDelay(9 * time.Hour)}})
	}
	f.Must(queuetest.Failure(q.SendBatch(queuetest.CtxB, first)))
	spent := queuetest.Commands(t, queuetest.Shared.Client(t), func() {
		results, err := q.SendBatch(queuetest.CtxB, batch)
		f.Must(err)
		for i, r := range results {
			if !r.Info.Existed {
				t.Errorf("%d: %+v", i, r.Info)
			}
		}
	})
	if n := spent["evalsha"] + spent["eval"]; n < 12 {
		t.Errorf("%d calls for 24 messages, each of which has another one of 200 KB read: %v", n, spent)
	}
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	for i := range 6 {
		got, err := m.GetKey(queuetest.CtxB, fmt.Sprint("k", i))
		if err != nil || got.Payload[:1] != "2" || time.Until(got.At) < 8*time.Hour {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
		if _, err := q.InterceptKey(queuetest.CtxB, fmt.Sprint("k", i)); err != nil {
			t.Error(err)
		}
	}
}
