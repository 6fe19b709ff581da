package databases

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/outbox"
)

// TestRefused: a key that is taken is an outcome, and stops no row behind it.
func TestRefused(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		var refused atomic.Int64
		b.OnRefused(func(r outbox.Refusal) {
			var taken *delayqueue.DuplicateKeyError
			if !errors.As(r.Error, &taken) || taken.Key != "k" || r.Row.Payload != "second" && r.Row.Payload != "third" ||
				r.Row.Options.Key != "k" || r.Row.Queue != w.Name {
				w.Errorf("%+v", r)
			}
			refused.Add(1)
			panic("a user's bug")
		})
		w.run(b)
		w.commit(func(tx *sql.Tx) {
			w.send(b, tx, "first", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour))
			w.send(b, tx, "second", delayqueue.WithKey("k"))
			w.send(b, tx, "third", delayqueue.WithKey("k"))
			w.send(b, tx, "kept", delayqueue.WithKey("k", delayqueue.Keep))
			w.send(b, tx, "other", delayqueue.WithDelay(time.Hour))
		})
		w.relayed(b)
		if s := w.stats(b); s.Refused != 2 || s.Sent != 3 || refused.Load() != 2 || w.live() != 2 {
			w.Errorf("%+v, %d told, %d live", s, refused.Load(), w.live())
		}
	})
}

// TestCancel: a cancel comes after what was sent before it, and before what is sent after it.
func TestCancel(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		w.commit(func(tx *sql.Tx) {
			w.send(b, tx, "first", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour))
			queuetest.Must(w.T, b.Cancel(w.Context(), tx, w.Name, "k"))
			w.send(b, tx, "second", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour))
			queuetest.Must(w.T, b.Cancel(w.Context(), tx, w.Name, "nobody's"))
		})
		w.run(b)
		w.relayed(b)
		if got, err := w.look.GetKey(w.Context(), "k"); err != nil || got.Payload != "second" || w.live() != 1 {
			w.Errorf("%+v, %d live: %v", got, w.live(), err)
		}
		w.commit(func(tx *sql.Tx) { queuetest.Must(w.T, b.Cancel(w.Context(), tx, w.Name, "k")) })
		queuetest.Reaches(w.T, "messages", 0, func() int { return int(w.live()) })
		w.relayed(b)
		if s := w.stats(b); s.Sent != 2 || s.Refused != 0 {
			w.Errorf("%+v", s)
		}
	})
}

// TestDead: rows that cannot be sent stop no other, say why, and are sent when they were mended.
func TestDead(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		w.sends(b, "options", "kind", "newer", "deadline", "good")
		for payload, options := range map[string]string{"options": "{", "newer": `{"unheardOf":1}`,
			"deadline": `{"retention":1}`} {
			w.exec("UPDATE {}outbox SET options = ? WHERE payload = ?", []byte(options), []byte(payload))
		}
		w.exec("UPDATE {}outbox SET kind = 'x' WHERE payload = ?", []byte("kind"))
		w.run(b)
		w.relayed(b)
		dead, err := b.Dead(w.Context(), 0, 3)
		queuetest.Must(w.T, err)
		if len(dead) != 3 || dead[0].Payload != "options" || dead[0].Error == "" || dead[0].Queue != w.Name {
			w.Fatalf("%+v", dead)
		}
		rest, err := b.Dead(w.Context(), dead[2].ID, 3)
		queuetest.Must(w.T, err)
		if len(rest) != 1 || w.live() != 1 {
			w.Fatalf("%+v, %d live", rest, w.live())
		}
		w.exec("UPDATE {}outbox SET options = ?, kind = 'send'", []byte{})
		n, err := b.Requeue(w.Context(), dead[0].ID, dead[1].ID, dead[2].ID, rest[0].ID, -1)
		if err != nil || n != 4 {
			w.Fatal(n, err)
		}
		queuetest.Reaches(w.T, "messages", 5, func() int { return int(w.live()) })
		w.relayed(b)
		if s := w.stats(b); s.Dead != 0 || s.Sent != 5 {
			w.Errorf("%+v", s)
		}
	})
}

// TestKeep: rows stay as long as they may be needed, and no longer.
func TestKeep(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		stop := w.run(b)
		w.sends(b, "a", "b")
		w.relayed(b)
		queuetest.Eventually(w.T, "it is noted when they were sent", func() bool {
			return w.number("SELECT COUNT(*) FROM {}outbox_queues WHERE marks <> ''") == 1
		})
		stop()
		if n := w.number("SELECT COUNT(*) FROM {}outbox"); n != 2 {
			w.Errorf("%d rows are kept", n)
		}
		b = w.box().WithKeep(0)
		w.run(b)
		queuetest.Eventually(w.T, "they are deleted", func() bool { return w.number("SELECT COUNT(*) FROM {}outbox") == 0 })
		w.sends(b, "c")
		queuetest.Eventually(w.T, "it is deleted", func() bool { return w.number("SELECT COUNT(*) FROM {}outbox") == 0 })
		if n := w.live(); n != 3 {
			w.Errorf("%d messages", n)
		}
	})
}

// TestStrangers: a row of a queue that no box has waits, and the numbers say so.
func TestStrangers(t *testing.T) {
	each(t, func(w *world) {
		b := w.box()
		w.run(b)
		other, err := outbox.New(w.db, w.dialect, delayqueue.NewPublisher(w.Name+"-other", w.Cli))
		queuetest.Must(w.T, err)
		w.commit(func(tx *sql.Tx) {
			queuetest.Must(w.T, other.Send(w.Context(), tx, w.Name+"-other", "x"))
			w.send(b, tx, "y")
		})
		w.relayed(b)
		stats, err := b.Stats(w.Context())
		queuetest.Must(w.T, err)
		if len(stats) != 2 || stats[1].Queue != w.Name+"-other" || stats[1].Waiting != 1 || stats[1].Relayed ||
			stats[1].Oldest < 0 || w.live() != 1 {
			w.Errorf("%+v", stats)
		}
	})
}

// TestStatsCost: rows that were sent cost Stats nothing. MySQL has no index of those that wait alone.
func TestStatsCost(t *testing.T) {
	w := newWorld(t, mariadb, mariadb.dsn(t), queuetest.SharedBase(t))
	w.db.SetMaxOpenConns(1) // which counts its reads
	w.exec("INSERT INTO {}outbox (queue, payload, options, created_us, number) "+
		"SELECT ?, 'x', '', 1, seq FROM seq_1_to_5000", w.Name)
	w.exec("INSERT INTO {}outbox_queues (queue, sequence, marks, confirmed) VALUES (?, 'x', '', 4999)", w.Name)
	w.exec("INSERT INTO {}outbox (queue, payload, options, created_us) VALUES ('other', 'x', '', 1)")
	w.exec("FLUSH STATUS")
	b := w.box()
	if s := w.stats(b); s.Waiting != 1 || s.Oldest == 0 {
		t.Errorf("%+v", s)
	}
	read := w.number("SELECT CAST(SUM(variable_value) AS SIGNED) FROM information_schema.session_status " +
		"WHERE variable_name LIKE 'HANDLER_READ%'")
	if read > 200 {
		t.Errorf("%d rows or keys were read", read)
	}
}

// TestNew: what cannot work is refused with a reason.
func TestNew(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	q := w.publisher()
	for name, err := range map[string]error{
		"no database": queuetest.Failure(outbox.New(nil, outbox.SQLite, q)),
		"no dialect":  queuetest.Failure(outbox.New(w.db, outbox.Dialect{}, q)),
		"long name": queuetest.Failure(outbox.New(w.db, outbox.SQLite,
			delayqueue.NewPublisher(strings.Repeat("x", 1001), w.Cli))),
		"no queue":  queuetest.Failure(outbox.New(w.db, outbox.SQLite)),
		"nil queue": queuetest.Failure(outbox.New(w.db, outbox.SQLite, nil)),
		"twice":     queuetest.Failure(outbox.New(w.db, outbox.SQLite, q, q)),
	} {
		if err == nil {
			t.Error(name)
		}
	}
	b := w.box()
	w.run(b)
	queuetest.Eventually(t, "it runs", func() bool { return w.stats(b).Relayed })
	if err := b.Run(t.Context()); !errors.Is(err, outbox.ErrRunning) {
		t.Error(err)
	}
	for _, f := range []func(){
		func() { b.WithKeep(-1) }, func() { b.WithLogger(nil) }, func() { b.OnRefused(nil) }, func() { b.OnHealed(nil) },
		func() { outbox.Postgres.WithPrefix("a;b") }, func() { outbox.Postgres.WithPrefix("Orders_") },
		func() { outbox.Postgres.WithPrefix("1_") }, func() { outbox.Postgres.WithPrefix(strings.Repeat("x", 41)) },
	} {
		if queuetest.PanicText(f) == "" {
			t.Error("no panic")
		}
	}
}

// TestShards: a queue with several shards is refused, also a new one that is to have them. Other queues go on.
func TestShards(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	other := delayqueue.NewPublisher(w.Name+"-old", w.Cli, delayqueue.WithShards(3))
	queuetest.Must(t, other.SendDelayMsg("x", time.Hour))
	wants := delayqueue.NewPublisher(w.Name+"-new", w.Cli, delayqueue.WithShards(3))
	b := w.box(other, w.publisher())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	w.sends(b, "x")
	queuetest.Reaches(t, "messages of the good queue", 1, func() int { return int(w.live()) })
	w.Log.Says(t, 1, "is not relayed", w.Name+"-old")
	cancel()
	if err := queuetest.Receive(t, "the end of Run", ended); !errors.Is(err, outbox.ErrShards) ||
		!strings.Contains(err.Error(), w.Name+"-old") {
		t.Error(err)
	}
	b = w.box(wants)
	w.commit(func(tx *sql.Tx) { queuetest.Must(t, b.Send(t.Context(), tx, w.Name+"-new", "x")) })
	if err := b.Run(t.Context()); !errors.Is(err, outbox.ErrShards) {
		t.Error(err)
	}
	queuetest.Must(t, wants.SendDelayMsg("y", time.Hour)) // it has the shards that it is to have
	w.Vanished = 1
	for _, key := range w.Cli.Keys(t.Context(), "*"+w.Name+"*").Val() {
		queuetest.Must(t, w.Cli.Del(t.Context(), key).Err())
	}
}
