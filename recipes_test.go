package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/delayqueuetest"
	"github.com/go-delayqueue/delayqueue/ops"
)

// These tests run the workflows of docs/recipes.md, which are functions beside the Examples, on virtual time.

// A flow is a queue of a recipe, and what its handlers did: each word, and how long after the start.
type flow struct {
	*delayqueuetest.Rig
	t       *testing.T
	queue   *delayqueue.DelayQueue
	monitor *ops.Queue
	start   time.Time
	did     []string
	fails   map[string]int // how often the work fails, by its word; -1: always
}

func newFlow(t *testing.T, name string) *flow {
	t.Parallel()
	rig := delayqueuetest.New(t)
	return &flow{Rig: rig, t: t, queue: rig.Queue(name).WithNackRedeliveryDelay(time.Minute), start: rig.Now(),
		fails:   map[string]int{},
		monitor: ops.Of(delayqueue.NewMonitor(name, rig.Client()))}
}

var errWork = errors.New("no luck")

// work is what a handler does.
func (f *flow) work(_ context.Context, word string) error {
	f.did = append(f.did, fmt.Sprint(word, "@", f.Now().Sub(f.start)))
	if f.fails[word] != 0 {
		f.fails[word]--
		return errWork
	}
	return nil
}

// result is the same, with a result.
func (f *flow) result(ctx context.Context, row string) (string, error) {
	return row + "!", f.work(ctx, row)
}

// twice makes each message come twice: the first handler does all of its work, and no ack follows.
func (f *flow) twice() {
	f.queue.WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
		return func(ctx context.Context, msg *delayqueue.Message) error {
			if err := next(ctx, msg); err != nil || msg.Delivery > 1 {
				return err
			}
			return delayqueue.Snooze(0)
		}
	})
}

func (f *flow) send(payload string, opts ...delayqueue.MsgOption) {
	f.t.Helper()
	_, err := f.queue.Send(f.t.Context(), payload, opts...)
	f.must(err)
}

func (f *flow) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// does wants this, and nothing else, within d.
func (f *flow) does(d time.Duration, want ...string) {
	f.t.Helper()
	f.Advance(d)
	if !slices.Equal(f.did, want) {
		f.t.Errorf("within %v it did %q, want %q", d, f.did, want)
	}
	f.did = nil
}

func TestRecipeChain(t *testing.T) {
	f := newFlow(t, "orders")
	chain(f.queue, 7*24*time.Hour)
	f.twice()
	f.send("charge")
	f.Advance(7*24*time.Hour - time.Minute)
	if sent := f.Sent("orders"); len(sent) != 3 || sent[2].State != delayqueue.StatePending ||
		sent[2].Due != f.start.Add(7*24*time.Hour) {
		t.Errorf("each step has run twice, and sent %v", sent)
	}
	f.Advance(time.Minute)
	f.RequireEmpty()
}

// TestRecipeLane: changes of a customer come in their order, also if one fails, beside those of others.
func TestRecipeLane(t *testing.T) {
	f := newFlow(t, "changes")
	f.queue.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error { return f.work(ctx, msg.Payload) })
	f.fails["42-a"], f.fails["42-b"] = 2, -1
	for _, customer := range []string{"42", "43"} {
		for _, change := range []string{"-a", "-b", "-c"} {
			f.send(customer+change, delayqueue.WithLane("customer-"+customer), delayqueue.WithRetryCount(2))
		}
	}
	f.does(0, "42-a@0s", "43-a@0s", "43-b@0s", "43-c@0s")
	f.does(time.Minute, "42-a@1m0s")
	f.does(time.Minute, "42-a@2m0s", "42-b@2m0s")
	f.does(time.Hour, "42-b@3m0s", "42-b@4m0s", "42-c@4m0s")
	if dead := f.Garbage("changes"); len(dead) != 1 || dead[0].Payload != "42-b" {
		t.Errorf("garbage is %v", dead)
	}
}

func TestRecipeFanOut(t *testing.T) {
	f := newFlow(t, "mails")
	fanOut(f.queue, []string{"ann", "bob", "eve"}, f.work)
	f.queue.WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
		return func(ctx context.Context, msg *delayqueue.Message) error {
			err := next(ctx, msg)
			if msg.Payload == "newsletter" && msg.Delivery < 3 {
				return errWork
			}
			return err
		}
	})
	f.send("newsletter")
	f.does(2*time.Minute - time.Second)
	f.does(time.Hour, "ann@2m0s", "bob@2m0s", "eve@2m0s")
	f.RequireEmpty()
}

// TestRecipeAllDone: the report comes with the last ack, once, although the rows are sent again and again and handled
// twice.
func TestRecipeAllDone(t *testing.T) {
	f := newFlow(t, "imports")
	f.queue.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error { return f.work(ctx, msg.Payload) })
	f.fails["b"] = 2
	rows := []string{"a", "b", "c"}
	again := func() { f.must(sendRows(t.Context(), f.queue, "import-7", rows)) }
	again()
	f.does(0, "a@0s", "b@0s", "c@0s")
	again()
	f.does(time.Minute, "b@1m0s")
	f.does(time.Minute, "b@2m0s", "report@2m0s")
	again()
	f.does(2 * time.Hour)
	f.RequireEmpty()

	f.start, f.fails["d"] = f.Now(), 4
	rows = []string{"d"}
	f.must(sendRows(t.Context(), f.queue, "import-6", rows))
	f.does(10*time.Minute, "d@0s", "d@1m0s", "d@2m0s", "d@3m0s")
	f.must(sendRows(t.Context(), f.queue, "import-6", rows)) // what is garbage has no key
	f.does(0, "d@10m0s", "report@10m0s")

	f.start = f.Now()
	f.must(sendRows(t.Context(), f.queue, "import-8", nil))
	f.does(0, "report@0s")
	f.twice()
	f.must(sendRows(t.Context(), f.queue, "import-9", []string{"a", "b"}))
	f.does(0, "a@0s", "b@0s", "a@0s", "b@0s", "report@0s", "report@0s")
}

// TestRecipeAllDoneOfUnknown: a sender that learns the number last says it last.
func TestRecipeAllDoneOfUnknown(t *testing.T) {
	f := newFlow(t, "imports")
	f.queue.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error { return f.work(ctx, msg.Payload) })
	f.send("report", delayqueue.WithKey("import-7"), delayqueue.WithCountdown(1e9), delayqueue.WithDelay(time.Hour))
	for _, row := range []string{"a", "b"} {
		f.send(row, delayqueue.WithCounts("import-7"))
		f.does(0, row+"@0s")
	}
	f.send("c", delayqueue.WithCounts("import-7"), delayqueue.WithDelay(time.Minute))
	f.send("report", delayqueue.WithKey("import-7", delayqueue.Replace), delayqueue.WithCountdown(3))
	f.does(time.Hour, "c@1m0s", "report@1m0s")
	f.RequireEmpty()
}

// TestRecipeResults: each result is in the one message once, although each handler runs twice; or those that there
// are after an hour.
func TestRecipeResults(t *testing.T) {
	f := newFlow(t, "imports")
	sumUp(f.queue, 3, f.result, f.work)
	f.twice()
	for i, row := range []string{"a", "b", "c"} {
		f.send(row, delayqueue.WithDelay(time.Duration(i)*time.Minute))
	}
	f.does(time.Hour, "a@0s", "a@0s", "b@1m0s", "b@1m0s", "c@2m0s", "c@2m0s", "a!; b!; c!@2m0s", "a!; b!; c!@2m0s")
	f.RequireEmpty()

	f.start = f.Now()
	f.send("a")
	f.send("b", delayqueue.WithDelay(50*time.Minute))
	f.send("c", delayqueue.WithDelay(90*time.Minute))
	f.does(2*time.Hour, "a@0s", "a@0s", "b@50m0s", "b@50m0s", "a!; b!@1h0m0s", "a!; b!@1h0m0s", "c@1h30m0s", "c@1h30m0s")
	f.does(time.Hour, "c!@2h30m0s", "c!@2h30m0s")
	f.RequireEmpty()
}

func TestRecipeTwoLevels(t *testing.T) {
	f := newFlow(t, "imports")
	rows := map[string][]string{"A": {"a1", "a2"}, "B": nil, "C": {"c1"}}
	splitFiles(f.queue, func(file string) []string { return rows[file] }, f.work)
	f.fails["a2"], f.fails["c1"] = 1, -1
	f.must(sendFolder(t.Context(), f.queue, "A", "B", "C"))
	f.does(0, "a1@0s", "a2@0s", "B is done@0s", "c1@0s")
	f.does(time.Minute, "a2@1m0s", "A is done@1m0s", "c1@1m0s")
	f.does(2*time.Hour, "c1@2m0s", "c1@3m0s", "C is done@1h0m0s", "the folder is done@1h0m0s")
	f.RequireEmpty("others")
}

// TestRecipeTimeLimit: a row in garbage is missing until it is requeued and handled, and after some looks the report
// goes without it.
func TestRecipeTimeLimit(t *testing.T) {
	for name, requeue := range map[string]bool{"missing": false, "requeued": true} {
		t.Run(name, func(t *testing.T) {
			f := newFlow(t, "imports")
			reportInTime(f.queue, f.work, f.work)
			f.fails["b"] = 4
			f.must(sendRows(t.Context(), f.queue, "import-7", []string{"a", "b"}))
			f.does(65*time.Minute, "a@0s", "b@0s", "b@1m0s", "b@2m0s", "b@3m0s")
			if !requeue {
				f.does(time.Hour, "1 rows are missing@1h30m0s")
				return
			}
			f.must(f.monitor.Requeue(t.Context(), f.Garbage("imports")[0].ID))
			f.does(time.Hour, "b@1h5m0s", "all rows are in@1h10m0s")
			f.RequireEmpty()
		})
	}
}

// TestRecipeFailure: a row that fails for good is a result among the others. A row that is late is told by itself.
func TestRecipeFailure(t *testing.T) {
	f := newFlow(t, "imports")
	countFailures(f.queue, f.result, f.work)
	f.twice()
	f.fails["b"] = -1
	f.must(sendGroup(t.Context(), f.queue, "a", "b"))
	f.Advance(10 * time.Minute)
	if end := f.did[len(f.did)-2:]; !slices.Equal(end,
		[]string{"import 7; a!; b failed: no luck@3m0s", "import 7; a!; b failed: no luck@3m0s"}) {
		t.Errorf("it did %q", f.did)
	}
	f.RequireEmpty()

	f.did, f.start = nil, f.Now()
	f.must(sendGroup(t.Context(), f.queue))
	f.does(0, "import 7@0s", "import 7@0s")
	f.send("import 7", delayqueue.WithKey("import-7", delayqueue.Append), delayqueue.WithCountdown(1),
		delayqueue.WithDelay(time.Hour))
	f.send("late", delayqueue.WithCounts("import-7"), delayqueue.WithDelay(2*time.Hour))
	f.does(3*time.Hour, "import 7@1h0m0s", "import 7@1h0m0s", "late@2h0m0s", "late@2h0m0s", "late!@2h0m0s", "late!@2h0m0s")
	f.RequireEmpty()
}

// TestRecipeCancel: of an import that is canceled nothing is handled any more. Another import goes on.
func TestRecipeCancel(t *testing.T) {
	for name, all := range map[string]bool{"all that waits": true, "the report only": false} {
		t.Run(name, func(t *testing.T) {
			f := newFlow(t, "imports")
			unlessCanceled(f.queue, f.monitor, f.work)
			f.fails["7a"] = -1
			for _, id := range []string{"import-7", "import-8"} {
				n := strings.TrimPrefix(id, "import-")
				f.must(sendRows(t.Context(), f.queue, id, []string{n + "a", n + "b"}))
				f.send(n+"c", delayqueue.WithHeader("import", id), delayqueue.WithDelay(30*time.Minute))
			}
			f.does(0, "7a@0s", "7b@0s", "8a@0s", "8b@0s", "report@0s")
			if all {
				f.must(cancelImport(t.Context(), f.monitor, "import-7"))
				if n := f.count(); n != 1 {
					t.Errorf("%d messages wait, want that of the other import", n)
				}
			} else if r, err := f.queue.InterceptKey(t.Context(), "import-7"); err != nil || !r.Intercepted {
				t.Errorf("%+v, %v", r, err)
			}
			f.does(2 * time.Hour) // 8c comes after its report
			f.RequireEmpty()
		})
	}
}

// count is how many messages wait.
func (f *flow) count() int64 {
	f.t.Helper()
	counts, err := f.monitor.Counts(f.t.Context())
	f.must(err)
	return counts.Pending + counts.Ready + counts.Retry
}

// TestRecipeUndo: what was done is undone, each step once, in turn. A failure that is followed by a success undoes
// nothing.
func TestRecipeUndo(t *testing.T) {
	f := newFlow(t, "orders")
	undoing(f.queue, f.work)
	f.fails["pack"], f.fails["ship"], f.fails["undo pack"] = 1, -1, 2
	f.send("charge", delayqueue.WithRetryCount(0))
	f.does(time.Hour, "charge@0s", "pack@0s", "pack@1m0s", "ship@1m0s", "ship@2m0s", "ship@3m0s", "ship@4m0s",
		"undo ship@4m0s", "undo pack@4m0s", "undo pack@5m0s", "undo pack@6m0s", "undo charge@6m0s")
	f.RequireEmpty()
	if sent := f.Sent("orders"); len(sent) != 6 {
		t.Errorf("sent %v", sent)
	}

	f.start = f.Now()
	f.fails["charge"] = 1
	f.send("charge", delayqueue.WithRetryCount(0))
	f.does(time.Hour, "charge@0s", "undo charge@0s")
}
