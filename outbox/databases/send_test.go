package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"
)

// TestCommitted: what commits is handled once, and what rolls back never.
func TestCommitted(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		w.run(b)
		w.consume()
		const orders = 60
		for i := range orders {
			tx := w.begin()
			w.send(b, tx, fmt.Sprint(i))
			if i%3 == 0 {
				queuetest.Must(w.T, tx.Rollback())
				continue
			}
			queuetest.Must(w.T, tx.Commit())
			if i%2 == 0 {
				b.Committed()
			}
		}
		w.relayed(b)
		queuetest.Reaches(w.T, "handled", orders/3*2, w.all)
		for i := range orders {
			want := min(i%3, 1)
			if got := w.times(fmt.Sprint(i)); got != want {
				w.Errorf("%d is handled %d times, want %d", i, got, want)
			}
		}
		if s := w.stats(b); s.Sent != orders/3*2 || s.Healed+s.Refused+s.Dead != 0 || !s.Relayed {
			w.Errorf("%+v", s)
		}
	})
}

// TestLongTransaction: a row that commits late, with a lower id than rows that were sent, is sent.
func TestLongTransaction(t *testing.T) {
	eachOf(t, []*kind{postgres, mariadb}, func(w *world) { // in SQLite one transaction writes at a time
		b := w.box()
		w.run(b)
		w.consume()
		long := w.begin()
		w.send(b, long, "late")
		for i := range 250 {
			w.sends(b, fmt.Sprint(i))
		}
		queuetest.Reaches(w.T, "handled", 250, w.all)
		queuetest.Must(w.T, long.Commit())
		queuetest.Reaches(w.T, "handled", 251, w.all)
	})
}

// TestBadSend: what a queue would refuse is refused before a row is written, with the same error.
func TestBadSend(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	b, tx := w.box(), w.begin()
	for name, bad := range map[string]struct {
		queue string
		opts  []delayqueue.MsgOption
		want  error
		says  string
	}{
		"queue":    {queue: "other", want: outbox.ErrUnknownQueue, says: `"other"`},
		"option":   {opts: []delayqueue.MsgOption{delayqueue.WithKey("")}, want: delayqueue.ErrBadOption},
		"together": {opts: []delayqueue.MsgOption{delayqueue.WithKeyHold(time.Hour)}, want: delayqueue.ErrBadOption},
		"nil":      {opts: []delayqueue.MsgOption{nil}, want: delayqueue.ErrBadOption},
		"sequence": {opts: []delayqueue.MsgOption{delayqueue.WithSequence("a", 1)}, want: delayqueue.ErrBadOption,
			says: "itself"},
		"no UTF-8": {opts: []delayqueue.MsgOption{delayqueue.WithHeader("a", "\xff")},
			want: delayqueue.ErrBadOption, says: "UTF-8"},
		"deadline": {opts: []delayqueue.MsgOption{delayqueue.WithDeadline(time.Now().Add(-time.Hour))},
			want: delayqueue.ErrBadOption},
		"countdown": {opts: []delayqueue.MsgOption{delayqueue.WithCountdown(3)}, want: delayqueue.ErrBadOption},
	} {
		queue := bad.queue
		if queue == "" {
			queue = w.Name
		}
		err := b.Send(t.Context(), tx, queue, "x", bad.opts...)
		if !errors.Is(err, bad.want) || !strings.Contains(err.Error(), bad.says) || !strings.Contains(err.Error(), queue) {
			t.Errorf("%s: %v", name, err)
		}
		if bad.queue != "" || bad.says != "" {
			continue
		}
		if _, sent := w.publisher().Send(t.Context(), "x", bad.opts...); !errors.Is(sent, bad.want) {
			t.Errorf("%s: the queue says %v", name, sent)
		}
	}
	for _, key := range []string{"", "\xff"} {
		if err := b.Cancel(t.Context(), tx, w.Name, key); !errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("%q: %v", key, err)
		}
	}
	queuetest.Must(t, tx.Commit())
	conn, err := w.db.Conn(t.Context())
	queuetest.Must(t, err)
	defer conn.Close()
	for name, no := range map[string]outbox.Tx{"nil": nil, "DB": w.db, "Conn": conn, "sqlx": sqlx.NewDb(w.db, "sqlite")} {
		for _, err := range []error{b.Send(t.Context(), no, w.Name, "x"), b.Cancel(t.Context(), no, w.Name, "x")} {
			if !errors.Is(err, outbox.ErrNoTransaction) || !strings.Contains(err.Error(), w.Name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n := w.number("SELECT COUNT(*) FROM {}outbox"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// TestOptions: all options of a message pass through the table, and a delay counts from the insert.
func TestOptions(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		at := time.Now().Add(3 * time.Hour).Truncate(time.Microsecond)
		begun := time.Now()
		payload := "\x00\xff '\"\\ 中"
		w.commit(func(tx *sql.Tx) {
			w.send(b, tx, payload, delayqueue.WithKey("delay", delayqueue.Keep), delayqueue.WithDelay(time.Hour),
				delayqueue.WithRetryCount(0), delayqueue.WithTimeout(0), delayqueue.WithHeader("a 中", "b\n"),
				delayqueue.WithLane("lane", 3), delayqueue.WithRetention(time.Minute), delayqueue.WithMsgTTL(time.Hour),
				delayqueue.WithDeadline(at))
			w.send(b, tx, "", delayqueue.WithKey("schedule"), delayqueue.WithSchedule(at))
			w.send(b, tx, "", delayqueue.WithKey("now"))
		})
		sent := time.Now()
		time.Sleep(1200 * time.Millisecond) // what passes before the relay begins belongs to the delay
		relayed := time.Now()
		w.run(b)
		w.relayed(b)
		took := time.Since(relayed) // between the look at the row and its arrival in Redis, which makes it later
		got, err := w.look.GetKey(w.Context(), "delay")
		queuetest.Must(w.T, err)
		const rounded = 10 * time.Millisecond // instants are
		if got.Due.Before(begun.Add(time.Hour-rounded)) || got.Due.After(sent.Add(time.Hour+rounded+took)) {
			w.Errorf("due %v after an hour", got.Due.Sub(begun.Add(time.Hour)))
		}
		if got.Payload != payload || got.Headers["a 中"] != "b\n" || got.Lane != "lane" || got.LaneWidth != 3 {
			w.Errorf("%+v", got)
		}
		for key, want := range map[string]time.Time{"schedule": at} {
			if got, err := w.look.GetKey(w.Context(), key); err != nil || !got.Due.Equal(want) {
				w.Errorf("%s: due %v, want %v: %v", key, got.Due, want, err)
			}
		}
		if got, err := w.look.GetKey(w.Context(), "now"); err != nil || got.Due.After(time.Now()) {
			w.Errorf("due %v: %v", got.Due, err)
		}
	})
}

// TestLate: what cannot be sent in time is dead, and what can be has the rest of its TTL.
func TestLate(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		w.commit(func(tx *sql.Tx) {
			w.send(b, tx, "ttl", delayqueue.WithMsgTTL(time.Minute))
			w.send(b, tx, "deadline", delayqueue.WithDeadline(time.Now().Add(time.Minute)))
			w.send(b, tx, "instant", delayqueue.WithSchedule(time.Now()), delayqueue.WithMsgTTL(time.Minute))
			w.send(b, tx, "in time", delayqueue.WithDelay(time.Hour), delayqueue.WithMsgTTL(time.Minute))
		})
		w.exec("UPDATE {}outbox SET created_us = created_us - 120000000")
		for payload, options := range map[string]string{
			"deadline": `{"deadline":%q}`, "instant": `{"timed":true,"ttl":60000000000,"schedule":%q}`,
		} {
			past := time.Now().Add(-2 * time.Minute).Format(time.RFC3339Nano)
			w.exec("UPDATE {}outbox SET options = ? WHERE payload = ?", fmt.Appendf(nil, options, past), []byte(payload))
		}
		w.run(b)
		w.relayed(b)
		dead, err := b.Dead(w.Context(), 0, 10)
		queuetest.Must(w.T, err)
		for i, want := range []string{"ttl", "deadline", "instant"} {
			if i >= len(dead) || dead[i].Payload != want || !strings.Contains(dead[i].Error, "expired") {
				w.Fatalf("dead: %+v, want %s", dead, want)
			}
		}
		if s := w.stats(b); s.Dead != 3 || s.Sent != 1 {
			w.Errorf("%+v", s)
		}
	})
}

// TestCommittedTells: a box that does not relay tells the one that does, so nobody waits for its next look.
func TestCommittedTells(t *testing.T) {
	w := newWorld(t, postgres, postgres.dsn(t), queuetest.SharedBase(t))
	relaying := w.box()
	w.run(relaying)
	w.sends(relaying, "first")
	w.relayed(relaying)
	other := w.box()
	w.soon(func(payload string) {
		w.sends(other, payload)
		other.Committed()
	})
	w.soon(func(payload string) {
		w.sends(relaying, payload)
		relaying.Committed()
	})
}

// soon sends messages one by one, and logs how long each takes from before its commit until it is in Redis. The fastest
// shows on any machine that nobody waits for the next look.
func (w *world) soon(send func(payload string)) {
	w.T.Helper()
	var took []time.Duration
	before := int(w.live())
	for i := range 20 {
		begun := time.Now()
		send(fmt.Sprint(i))
		queuetest.Reaches(w.T, "messages", before+i+1, func() int { return int(w.live()) })
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	w.Logf("from before the commit until it is in Redis: fastest %v, median %v", took[0], took[len(took)/2])
	if took[0] > 300*time.Millisecond {
		w.Errorf("the fastest took %v", took[0])
	}
}

// TestListen: notifications of PostgreSQL do what Committed does.
func TestListen(t *testing.T) {
	w := newWorld(t, postgres, postgres.dsn(t), queuetest.SharedBase(t))
	w.schema(w.dialect.WithNotify())
	w.schema(w.dialect.WithNotify())
	b := w.box() // which does not relay
	w.run(w.box())
	conn, err := pgx.Connect(t.Context(), postgres.dsn(t))
	queuetest.Must(t, err)
	_, err = conn.Exec(t.Context(), w.sql("LISTEN {}outbox"))
	queuetest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- outbox.Listen(ctx, b, conn) }()
	w.sends(b, "first")
	w.relayed(b)
	w.soon(func(payload string) { w.sends(b, payload) })
	cancel()
	queuetest.Must(t, queuetest.Receive(t, "the end of Listen", ended))
	queuetest.Must(t, conn.Close(context.Background()))
	broken, err := pgx.Connect(t.Context(), postgres.dsn(t))
	queuetest.Must(t, err)
	queuetest.Must(t, broken.Close(t.Context()))
	if err := outbox.Listen(t.Context(), b, broken); err == nil {
		t.Error("no error of a connection that is closed")
	}
}
