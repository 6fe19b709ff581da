package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/redis/go-redis/v9"
)

// TestSlowRefused: a function of OnRefused that takes longer than the lease is called once, and others relay meanwhile.
func TestSlowRefused(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	first := w.box()
	calls, goOn := make(chan struct{}, 10), make(chan struct{})
	first.OnRefused(func(outbox.Refusal) {
		calls <- struct{}{}
		<-goOn
	})
	w.run(first)
	w.commit(func(tx *sql.Tx) {
		w.send(first, tx, "a", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour))
		w.send(first, tx, "b", delayqueue.WithKey("k"))
		w.send(first, tx, "c", delayqueue.WithDelay(time.Hour))
	})
	queuetest.Receive(t, "the call", calls)
	second := w.box()
	w.run(second)
	w.relayed(second)
	close(goOn)
	w.sends(first, "d")
	w.relayed(first)
	if s := w.stats(first); s.Refused != 1 || s.Sent != 3 || len(calls) > 0 {
		t.Errorf("%+v, %d more calls", s, len(calls))
	}
}

// TestRefusedEndsItsGoroutine: a function of OnRefused may end its goroutine, as t.FailNow does.
func TestRefusedEndsItsGoroutine(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	b := w.box()
	b.OnRefused(func(outbox.Refusal) { runtime.Goexit() })
	w.run(b)
	w.commit(func(tx *sql.Tx) {
		w.send(b, tx, "a", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour))
		w.send(b, tx, "b", delayqueue.WithKey("k"))
		w.send(b, tx, "c", delayqueue.WithDelay(time.Hour))
	})
	w.relayed(b)
}

// TestManyRefused: what a refused row costs does not depend on how many stand behind it.
func TestManyRefused(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	const rows = 300
	q := &countingQueue{Publisher: w.publisher()}
	b := w.box(q)
	for range 2 {
		w.commit(func(tx *sql.Tx) {
			for i := range rows {
				w.send(b, tx, fmt.Sprint(i), delayqueue.WithKey(fmt.Sprint(i)), delayqueue.WithDelay(time.Hour))
			}
		})
	}
	w.run(b)
	w.relayed(b)
	if s, n := w.stats(b), q.messages.Load(); s.Refused != rows || s.Sent != rows || n > 5*rows {
		t.Errorf("%+v; %d messages were sent", s, n)
	}
}

type countingQueue struct {
	*delayqueue.Publisher
	messages atomic.Int64
	broken   atomic.Bool
}

func (q *countingQueue) SendBatch(ctx context.Context, batch []delayqueue.Outgoing) ([]delayqueue.SendResult, error) {
	q.messages.Add(int64(len(batch)))
	if q.broken.Load() {
		return nil, errors.New("broken")
	}
	return q.Publisher.SendBatch(ctx, batch)
}

// TestNoResults: a Queue of somebody else's that returns no results is tried again later, and Run ends.
func TestNoResults(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	q := &countingQueue{Publisher: w.publisher()}
	q.broken.Store(true)
	b := w.box(q)
	w.sends(b, "a")
	stop := w.run(b)
	queuetest.Eventually(t, "it was tried twice", func() bool { return q.messages.Load() > 1 })
	stop()
	q.broken.Store(false)
	w.run(b)
	w.relayed(b)
}

// TestHealsExpired: what has expired since Redis had taken it was sent, and is not dead.
func TestHealsExpired(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		w.run(b)
		w.commit(func(tx *sql.Tx) {
			for range 20 {
				w.send(b, tx, "expires", delayqueue.WithMsgTTL(time.Hour))
			}
			w.send(b, tx, "stays")
			w.send(b, tx, "expires", delayqueue.WithMsgTTL(time.Hour))
		})
		w.relayed(b)
		w.exec("UPDATE {}outbox SET created_us = created_us - 7200000000")
		queuetest.Must(w.T, w.forget())
		queuetest.Reaches(w.T, "messages", 1, func() int { return int(w.live()) })
		w.sends(b, "next")
		queuetest.Reaches(w.T, "messages", 2, func() int { return int(w.live()) })
		w.relayed(b)
		if s := w.stats(b); s.Dead != 0 || s.Healed != 1 || s.Waiting != 0 {
			w.Errorf("%+v", s)
		}
	})
}

// TestHealsRefused: Redis goes back to when another message had the key. The one that it had taken later is dead, and
// is sent when somebody says so.
func TestHealsRefused(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		w.run(b)
		cancel := func() {
			_, err := w.publisher().CancelKey(w.Context(), "k")
			queuetest.Must(w.T, err)
		}
		for _, payload := range []string{"a", "b"} {
			w.commit(func(tx *sql.Tx) { w.send(b, tx, payload, delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour)) })
			w.relayed(b)
			cancel()
		}
		queuetest.Must(w.T, w.forget()) // a and b are there again, and the cancels are not
		queuetest.Eventually(w.T, "b is dead", func() bool { return w.stats(b).Dead == 1 })
		dead, err := b.Dead(w.Context(), 0, 10)
		queuetest.Must(w.T, err)
		if len(dead) != 1 || dead[0].Payload != "b" || !strings.Contains(dead[0].Error, "gone back") {
			w.Fatalf("%+v", dead)
		}
		cancel()
		if n, err := b.Requeue(w.Context(), dead[0].ID); n != 1 || err != nil {
			w.Fatal(n, err)
		}
		w.relayed(b)
		if got, err := w.look.GetKey(w.Context(), "k"); err != nil || got.Payload != "b" {
			w.Errorf("%+v, %v", got, err)
		}
		if s := w.stats(b); s.Refused != 0 || s.Dead != 0 {
			w.Errorf("%+v", s)
		}
	})
}

// TestQueueRowDeleted: somebody deletes the row of the queue, while rows have numbers and are not sent.
func TestQueueRowDeleted(t *testing.T) {
	each(t, func(w *world) {
		q := &countingQueue{Publisher: w.publisher()}
		b := w.box(q)
		stop := w.run(b)
		w.sends(b, "a", "b")
		w.relayed(b)
		q.broken.Store(true)
		w.sends(b, "c", "d")
		queuetest.Eventually(w.T, "they have numbers", func() bool {
			return w.number("SELECT COUNT(*) FROM {}outbox WHERE number IS NULL") == 0
		})
		stop()
		w.exec("DELETE FROM {}outbox_queues")
		w.run(w.box()) // a and b are sent again, because nobody knows any more that they were
		queuetest.Reaches(w.T, "messages", 6, func() int { return int(w.live()) })
	})
}

// TestForeignRows: rows that another program writes, as docs/outbox.md says.
func TestForeignRows(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		clock := map[*kind]string{
			postgres: "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
			mariadb:  "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
			sqlite:   "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
		}[w.kind]
		insert := func(payload, options string) {
			w.exec("INSERT INTO {}outbox (queue, payload, options, created_us) VALUES ('"+w.Name+"', ?, ?, "+clock+")",
				[]byte(payload), []byte(options))
		}
		insert("plain", "")
		insert("delay", `{"key": "d", "delay": 900000000000}`)
		insert("two", `{} {"key":"x"}`)
		insert("tail", `{} ]`)
		insert("日本", `{"日本":1}`)
		begun := time.Now()
		w.run(b)
		w.relayed(b)
		got, err := w.look.GetKey(w.Context(), "d")
		queuetest.Must(w.T, err)
		if left := got.Due.Sub(begun); left < 14*time.Minute || left > 16*time.Minute {
			w.Errorf("due in %v", left)
		}
		dead, err := b.Dead(w.Context(), 0, 10)
		queuetest.Must(w.T, err)
		if len(dead) != 3 || dead[0].Payload != "two" || dead[1].Payload != "tail" ||
			!strings.Contains(dead[2].Error, "日本") || w.live() != 2 {
			w.Errorf("%+v, %d live", dead, w.live())
		}
		if w.kind == sqlite {
			_, err := w.db.ExecContext(w.Context(), w.sql("INSERT INTO {}outbox (queue, payload, created_us) "+
				"VALUES ('x', 'x', datetime('now'))"))
			if err == nil {
				w.Error("a text is taken for microseconds")
			}
			w.exec("INSERT INTO {}outbox (queue, payload) VALUES ('" + w.Name + "', 'x')")
		}
	})
}

// TestClockBack: the database's clock was ahead when a Box took the queue, and the Box is gone.
func TestClockBack(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		stop := w.run(b)
		w.sends(b, "a")
		w.relayed(b)
		stop()
		w.exec("UPDATE {}outbox_queues SET holder = 'gone', until_us = until_us + 9000000000000000")
		if s := w.stats(b); s.Relayed {
			w.Errorf("%+v", s)
		}
		w.run(b)
		w.sends(b, "b")
		w.relayed(b)
	})
}

// TestGaps: ids that are far from each other use up no numbers.
func TestGaps(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		for i, id := range []int64{1, 4_000_000_000_000_000_000, 2, 4_000_000_000_000_000_001, 9_000_000_000_000_000_000} {
			w.exec(fmt.Sprintf("INSERT INTO {}outbox (id, queue, payload, options, created_us) VALUES (%d, '%s', ?, ?, 1)", id,
				w.Name), fmt.Append(nil, i), []byte{})
		}
		w.run(b)
		w.relayed(b)
		if n := w.number("SELECT numbered FROM {}outbox_queues"); n > 5 || w.live() != 5 {
			w.Errorf("%d numbers, %d live", n, w.live())
		}
	})
}

// TestSequenceAtItsEnd: somebody has moved the sequence so far that nothing can come after.
func TestSequenceAtItsEnd(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	b := w.box()
	w.run(b)
	w.sends(b, "a")
	w.relayed(b)
	var sequence string
	queuetest.Must(t, w.db.QueryRowContext(t.Context(), w.sql("SELECT sequence FROM {}outbox_queues")).Scan(&sequence))
	_, err := w.look.PassSequence(t.Context(), sequence, 1<<63-1)
	queuetest.Must(t, err)
	w.sends(b, "b")
	queuetest.Eventually(t, "no Box relays", func() bool { return !w.stats(b).Relayed })
	queuetest.Must(t, w.look.DropSequence(t.Context(), sequence))
	w.relayed(b)
	queuetest.Reaches(t, "messages", 3, func() int { return int(w.live()) }) // a is sent again
}

// TestTooLargeForTheServer: a server that takes no payload of this size stops no other row.
func TestTooLargeForTheServer(t *testing.T) {
	base, _ := queuetest.OwnBase(t, "--proto-max-bulk-len", "1mb")
	w := newWorld(t, sqlite, sqlite.dsn(t), base)
	b := w.box()
	w.commit(func(tx *sql.Tx) {
		w.send(b, tx, "a")
		w.send(b, tx, strings.Repeat("x", 2<<20))
		w.send(b, tx, "b")
	})
	w.run(b)
	w.relayed(b)
	if s := w.stats(b); s.Dead != 1 || s.Sent != 2 {
		t.Errorf("%+v", s)
	}
}

// TestTidyUnderLoad: rows are deleted also while new ones keep coming.
func TestTidyUnderLoad(t *testing.T) {
	w := newWorld(t, postgres, postgres.dsn(t), queuetest.SharedBase(t))
	b := w.box().WithKeep(0)
	w.run(b)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			tx, err := w.db.BeginTx(ctx, nil)
			for i := 0; i < 20 && err == nil; i++ {
				err = b.Send(ctx, tx, w.Name, "x")
			}
			if err == nil {
				err = tx.Commit()
			}
			if b.Committed(); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	queuetest.Eventually(t, "the first row is deleted", func() bool {
		return w.number("SELECT COUNT(*) FROM {}outbox WHERE id = 1") == 0
	})
	stop()
	<-ended
}

// TestDeadPages: all dead rows are found page by page, however large they are.
func TestDeadPages(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	b := w.box(w.publisher(), delayqueue.NewPublisher(w.Name+"-other", w.Cli))
	large := []byte(strings.Repeat("x", 3<<20))
	for i, queue := range []string{w.Name, w.Name, w.Name, w.Name + "-other"} {
		w.exec(fmt.Sprintf("INSERT INTO {}outbox (id, queue, payload, number) VALUES (%d, '%s', ?, 0)", i+1, queue), large)
	}
	var seen []int64
	for {
		after := int64(0)
		if len(seen) > 0 {
			after = seen[len(seen)-1]
		}
		rows, err := b.Dead(t.Context(), after, 10)
		queuetest.Must(t, err)
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			seen = append(seen, row.ID)
		}
	}
	if fmt.Sprint(seen) != "[1 2 3 4]" {
		t.Error(seen)
	}
	if _, err := b.Dead(t.Context(), 0, 0); err == nil {
		t.Error("no error of a limit of 0")
	}
}

// TestRights: a service with a Box needs the rights that docs/outbox.md names, and no more.
func TestRights(t *testing.T) {
	base, server := queuetest.OwnBase(t)
	w := newWorld(t, sqlite, sqlite.dsn(t), base)
	page, role := queuetest.ReadText(t, "docs/outbox.md"), queuetest.ReadText(t, "docs/acl.md")
	line := regexp.MustCompile(`(?m)^ACL SETUSER scheduler .*$`).FindString(role)
	more := regexp.MustCompile("`(&\\{dq:orders\\}:outbox [^`]*)`").FindStringSubmatch(page)
	if line == "" || more == nil {
		t.Fatal("the pages do not say it")
	}
	words := strings.Fields(strings.ReplaceAll(line+" "+more[1], "{dq:orders}", "{dq:"+w.Name+"}"))
	args := []any{"acl", "setuser", "boxed", "on", ">secret"}
	for _, word := range words[5:] {
		args = append(args, word)
	}
	queuetest.Must(t, w.Cli.Do(t.Context(), args...).Err())
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "boxed", Password: "secret"})
	t.Cleanup(func() { queuetest.Must(t, cli.Close()) })
	b := w.box(delayqueue.NewPublisher(w.Name, cli))
	other := w.box(delayqueue.NewPublisher(w.Name, cli))
	w.run(b)
	w.commit(func(tx *sql.Tx) {
		w.send(b, tx, "a", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour))
		w.send(b, tx, "b", delayqueue.WithKey("k"))
		queuetest.Must(t, b.Cancel(t.Context(), tx, w.Name, "k"))
		w.send(b, tx, "c")
	})
	other.Committed()
	w.relayed(b)
	if denied := w.Cli.Do(t.Context(), "acl", "log").Val(); fmt.Sprint(denied) != "[]" {
		t.Error(denied)
	}
	if s := w.stats(b); s.Sent != 2 || s.Refused != 1 || w.live() != 1 {
		t.Errorf("%+v, %d live", s, w.live())
	}
}

// TestOneSubscription: all queues of a client share a connection, on which each hears of its own rows.
func TestOneSubscription(t *testing.T) {
	base, _ := queuetest.OwnBase(t)
	w := newWorld(t, sqlite, sqlite.dsn(t), base)
	w.run(w.box(w.publisher(), delayqueue.NewPublisher(w.Name+"-b", w.Cli), delayqueue.NewPublisher(w.Name+"-c", w.Cli)))
	queuetest.Eventually(t, "three channels are heard", func() bool {
		return len(w.Cli.PubSubChannels(t.Context(), "*:outbox").Val()) == 3
	})
	clients, err := w.Cli.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	queuetest.Must(t, err)
	if n := strings.Count(clients, "\n"); n != 1 {
		t.Errorf("%d connections: %s", n, clients)
	}
}

// TestLatin1: a dead row has its error also in a database that has no room for each character of it.
func TestLatin1(t *testing.T) {
	for k, create := range map[*kind]string{
		postgres: "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'",
		mariadb:  "CREATE DATABASE latin CHARACTER SET latin1",
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			dsn := k.dsn(t)
			_, err := connect(t, k.driver, dsn).ExecContext(t.Context(), create)
			queuetest.Must(t, err)
			dsn = strings.Replace(strings.Replace(dsn, "/postgres?", "/latin?", 1), "/test", "/latin", 1)
			w := newWorld(t, k, dsn, queuetest.SharedBase(t))
			b := w.box()
			w.exec("INSERT INTO {}outbox (queue, payload, options, created_us) VALUES ('"+w.Name+"', 'x', ?, 1)",
				[]byte(`{"日本":1}`))
			w.sends(b, "y")
			w.run(b)
			w.relayed(b)
			dead, err := b.Dead(t.Context(), 0, 10)
			if err != nil || len(dead) != 1 || !strings.Contains(dead[0].Error, "unknown field") || w.live() != 1 {
				t.Errorf("%+v, %v, %d live", dead, err, w.live())
			}
		})
	}
}
