package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/outbox"
)

// TestHeals: a Redis that comes back with an old RDB gets again what it has forgotten, and nothing else.
func TestHeals(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			base, server := queuetest.OwnBase(t)
			w := newWorld(t, k, k.dsn(t), base)
			b := w.box()
			var told atomic.Int64
			b.OnHealed(func(queue string, n int64) {
				if queue != w.Name {
					t.Errorf("healed %q", queue)
				}
				told.Add(n)
			})
			w.run(b)
			send := func(from, to int) {
				for i := from; i < to; i++ {
					w.commit(func(tx *sql.Tx) {
						w.send(b, tx, fmt.Sprint(i), delayqueue.WithKey(fmt.Sprint(i)), delayqueue.WithDelay(time.Hour))
					})
				}
				w.relayed(b)
			}
			send(0, 20)
			queuetest.Must(t, w.Cli.Save(t.Context()).Err())
			send(20, 50)
			w.commit(func(tx *sql.Tx) { queuetest.Must(t, b.Cancel(t.Context(), tx, w.Name, "30")) })
			w.relayed(b)
			server.Kill()
			server.Restart(t)
			send(50, 60)
			queuetest.Eventually(t, "healed", func() bool { return told.Load() == 30 })
			w.relayed(b)
			if n := w.live(); n != 59 {
				t.Errorf("%d messages", n)
			}
			if _, err := w.look.GetKey(t.Context(), "30"); !errors.Is(err, delayqueue.ErrNotFound) {
				t.Errorf("the message that was canceled is back: %v", err)
			}
			if s := w.stats(b); s.Healed != 30 || s.Sent != 90 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestHealsAll: all is forgotten, also while nobody relays.
func TestHealsAll(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		stop := w.run(b)
		w.sends(b, "a", "b", "c")
		w.relayed(b)
		stop()
		queuetest.Must(w.T, w.forget())
		w.run(w.box())
		queuetest.Reaches(w.T, "messages", 3, func() int { return int(w.live()) })
	})
}

// TestDatabaseForgets: a database that lost its last commits (an asynchronous failover) gives no number twice.
func TestDatabaseForgets(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		stop := w.run(b)
		w.consume()
		w.sends(b, "a", "b", "c")
		queuetest.Reaches(w.T, "handled", 3, w.all)
		stop()
		w.exec("UPDATE {}outbox_queues SET numbered = 1, confirmed = 1")
		w.exec("DELETE FROM {}outbox WHERE number > 1")
		b = w.box()
		w.run(b)
		w.sends(b, "d", "e")
		queuetest.Reaches(w.T, "handled", 5, w.all)
	})
}

// A doubtful queue loses answers: what SendBatch has stored, it does not know.
type doubtful struct {
	*delayqueue.Publisher
	calls atomic.Int64
	do    func(call int64, send func() []delayqueue.SendResult) []delayqueue.SendResult
}

func (q *doubtful) SendBatch(ctx context.Context, batch []delayqueue.Outgoing) ([]delayqueue.SendResult, error) {
	results := q.do(q.calls.Add(1), func() []delayqueue.SendResult {
		results, _ := q.Publisher.SendBatch(context.WithoutCancel(ctx), batch) // as if it was on the line for long
		return results
	})
	return results, nil
}

var errDoubt = errors.New("the answer is lost")

func lost(results []delayqueue.SendResult) []delayqueue.SendResult {
	results = slices.Clone(results)
	for i := range results {
		results[i].Err = errDoubt
	}
	return results
}

// TestDoubt: every second answer is lost, and every row becomes one message.
func TestDoubt(t *testing.T) {
	each(t, func(w *world) {
		q := &doubtful{Publisher: w.publisher()}
		q.do = func(call int64, send func() []delayqueue.SendResult) []delayqueue.SendResult {
			results := send()
			if call%2 == 1 {
				results = lost(results)
			}
			return results
		}
		b := w.box(q)
		w.run(b)
		w.consume()
		for i := range 4 {
			w.sends(b, fmt.Sprint(i), fmt.Sprint(i+10))
			w.relayed(b)
		}
		queuetest.Reaches(w.T, "handled", 8, w.all)
		if s := w.stats(b); s.Sent != 8 || s.Healed != 0 {
			w.Errorf("%+v", s)
		}
	})
}

// TestFrozenRelay: a relay stands still between numbers and send until another one has gone on, and then goes on.
func TestFrozenRelay(t *testing.T) {
	each(t, func(w *world) {
		frozen, thaw := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(thaw) })
		q := &doubtful{Publisher: w.publisher()}
		q.do = func(call int64, send func() []delayqueue.SendResult) []delayqueue.SendResult {
			if call == 1 {
				close(frozen)
				<-thaw
			}
			return send()
		}
		first := w.box(q)
		w.run(first)
		w.Cleanup(goOn)
		w.consume()
		w.sends(first, "a", "b")
		queuetest.Receive(w.T, "the frozen relay", frozen)
		second := w.box()
		w.run(second)
		queuetest.Reaches(w.T, "handled by the second relay", 2, w.all)
		w.sends(first, "c")
		queuetest.Reaches(w.T, "handled by the second relay", 3, w.all)
		goOn()
		w.sends(first, "d")
		queuetest.Reaches(w.T, "handled", 4, w.all)
		w.relayed(first)
		for _, payload := range []string{"a", "b", "c", "d"} {
			if n := w.times(payload); n != 1 {
				w.Errorf("%s is handled %d times", payload, n)
			}
		}
	})
}

// A haltingQueue stands still before it cancels for the first time.
type haltingQueue struct {
	*delayqueue.Publisher
	halted, goOn chan struct{}
	once         sync.Once
}

func (q *haltingQueue) Cancel(ctx context.Context, id string) (*delayqueue.InterceptResult, error) {
	q.once.Do(func() {
		close(q.halted)
		<-q.goOn
	})
	return q.Publisher.Cancel(context.WithoutCancel(ctx), id)
}

// TestFrozenCancel: a relay stands still before a cancel until another one has gone on, and then goes on. It must not
// take out the message that was sent after the cancel with the same key.
func TestFrozenCancel(t *testing.T) {
	each(t, func(w *world) {
		q := &haltingQueue{Publisher: w.publisher(), halted: make(chan struct{}), goOn: make(chan struct{})}
		first := w.box(q)
		w.run(first)
		goOn := sync.OnceFunc(func() { close(q.goOn) })
		w.Cleanup(goOn)
		w.commit(func(tx *sql.Tx) {
			w.send(first, tx, "old", delayqueue.WithKey("a"), delayqueue.WithDelay(time.Hour))
			queuetest.Must(w.T, first.Cancel(w.Context(), tx, w.Name, "a"))
			w.send(first, tx, "new", delayqueue.WithKey("a"), delayqueue.WithDelay(time.Hour))
		})
		queuetest.Receive(w.T, "the frozen relay", q.halted)
		second := w.box()
		w.run(second)
		w.relayed(second)
		if n := w.live(); n != 1 {
			w.Fatalf("%d messages", n)
		}
		goOn()
		w.sends(second, "last")
		queuetest.Reaches(w.T, "messages", 2, func() int { return int(w.live()) })
		got, err := w.look.GetKey(w.Context(), "a")
		queuetest.Must(w.T, err)
		if got.Payload != "new" {
			w.Errorf("%q has the key", got.Payload)
		}
	})
}

// TestFrozenBeforeRefused: a relay stands still before it sends a message, another one is refused it, and the key is
// free when the first goes on. It must not send what was refused.
func TestFrozenBeforeRefused(t *testing.T) {
	w := newWorld(t, postgres, postgres.dsn(t), queuetest.SharedBase(t))
	frozen, thaw, sent := make(chan struct{}), make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(thaw) })
	q := &doubtful{Publisher: w.publisher()}
	q.do = func(call int64, send func() []delayqueue.SendResult) []delayqueue.SendResult {
		if call == 2 {
			close(frozen)
			<-thaw
			defer close(sent)
		}
		return send()
	}
	first := w.box(q)
	w.run(first)
	w.Cleanup(goOn)
	w.commit(func(tx *sql.Tx) { w.send(first, tx, "a", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour)) })
	w.relayed(first)
	w.commit(func(tx *sql.Tx) { w.send(first, tx, "b", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour)) })
	queuetest.Receive(t, "the frozen relay", frozen)
	second := w.box()
	w.run(second)
	w.relayed(second)
	_, err := w.publisher().CancelKey(t.Context(), "k")
	queuetest.Must(t, err)
	goOn()
	queuetest.Receive(t, "the call of the frozen relay", sent)
	if s := w.stats(first); s.Refused != 1 || w.live() != 0 {
		t.Errorf("%+v, %d live", s, w.live())
	}
}

// forgetful is a queue that Redis forgets before the second batch.
func (w *world) forgetful() outbox.Queue {
	q := &doubtful{Publisher: w.publisher()}
	q.do = func(call int64, send func() []delayqueue.SendResult) []delayqueue.SendResult {
		if call == 2 {
			queuetest.Must(w.T, w.forget())
		}
		return send()
	}
	return q
}

// TestForgetsBetween: Redis forgets between two batches, and the second batch must not pass over the first one.
func TestForgetsBetween(t *testing.T) {
	each(t, func(w *world) {
		b := w.box(w.forgetful())
		w.run(b)
		w.sends(b, "a", "b")
		w.relayed(b)
		w.sends(b, "c")
		queuetest.Reaches(w.T, "messages", 3, func() int { return int(w.live()) })
	})
}

// TestForgetsWhatWasNotNoted: Redis forgets what the relay has just sent, before the database knows that. It counts as
// healed all the same.
func TestForgetsWhatWasNotNoted(t *testing.T) {
	each(t, func(w *world) {
		b := w.box(w.forgetful())
		w.run(b)
		w.commit(func(tx *sql.Tx) {
			w.send(b, tx, "a")
			w.send(b, tx, "b")
			queuetest.Must(w.T, b.Cancel(w.Context(), tx, w.Name, "none")) // a batch ends before a cancel
			w.send(b, tx, "c")
		})
		queuetest.Reaches(w.T, "messages", 3, func() int { return int(w.live()) })
		w.relayed(b)
		if s := w.stats(b); s.Healed != 2 || s.Sent != 5 {
			w.Errorf("%+v", s)
		}
	})
}

// TestHealsWithoutAnswers: the answer of Redis is lost while messages are sent again, and the database refuses for a
// while to note how far Redis is. Each message counts once.
func TestHealsWithoutAnswers(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	w.exec("CREATE TABLE {}refused (i)")
	q := &doubtful{Publisher: w.publisher()}
	q.do = func(call int64, send func() []delayqueue.SendResult) []delayqueue.SendResult {
		if call != 2 {
			return send()
		}
		w.exec("CREATE TRIGGER {}refuses BEFORE UPDATE OF forgotten ON {}outbox_queues BEGIN " +
			"INSERT INTO {}refused VALUES (1); SELECT RAISE(FAIL, 'not now'); END")
		return lost(send())
	}
	b := w.box(q)
	var told atomic.Int64
	b.OnHealed(func(_ string, n int64) { told.Add(n) })
	w.run(b)
	w.sends(b, "a", "b", "c")
	w.relayed(b)
	queuetest.Must(t, w.forget())
	queuetest.Eventually(t, "it is refused twice", func() bool { return w.number("SELECT COUNT(*) FROM {}refused") > 1 })
	w.exec("DROP TRIGGER {}refuses")
	queuetest.Eventually(t, "all are told", func() bool { return told.Load() == 3 })
	w.sends(b, "d")
	w.relayed(b)
	if s := w.stats(b); s.Sent != 7 || s.Healed != 3 || told.Load() != 3 {
		t.Errorf("%+v, %d told", s, told.Load())
	}
}

// TestManyRelays: boxes come and go, and all rows are relayed once.
func TestManyRelays(t *testing.T) {
	each(t, func(w *world) {
		w.consume()
		writer, sent := w.box(), 0
		for range 5 {
			var stops []func()
			for range 3 {
				stops = append(stops, w.run(w.box()))
			}
			for range 20 {
				w.sends(writer, fmt.Sprint(sent))
				sent++
			}
			for _, stop := range stops {
				stop()
			}
		}
		w.run(writer)
		queuetest.Reaches(w.T, "handled", sent, w.all)
		w.relayed(writer)
		if s := w.stats(writer); int(s.Sent) != sent || s.Healed != 0 {
			w.Errorf("%+v", s)
		}
	})
}
