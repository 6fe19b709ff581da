package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/dbtest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// ownPostgres starts a PostgreSQL of a test's own.
func ownPostgres(t *testing.T, settings ...string) *dbtest.Server {
	t.Helper()
	server, err := dbtest.Postgres(settings...)
	queuetest.Must(t, err)
	t.Cleanup(func() { queuetest.Must(t, server.Close()) })
	return server
}

// startAgain starts a server when nothing is left of the one that was killed.
func startAgain(t *testing.T, server *dbtest.Server) {
	t.Helper()
	queuetest.Eventually(t, "the database starts", func() bool { return server.Start() == nil })
}

// A writing writes messages, each in a transaction of its own, until it is stopped.
type writing struct {
	w         *world
	stop      atomic.Bool
	all       sync.WaitGroup
	mu        sync.Mutex
	confirmed []string // payloads whose COMMIT was answered
	failed    int
}

// write begins to write through databases that use returns, which may change.
func (w *world) write(b *outbox.Box, use func() *sql.DB) *writing {
	l := &writing{w: w}
	w.exec("CREATE TABLE {}written (payload varchar(50) PRIMARY KEY)")
	for worker := range 4 {
		l.all.Go(func() {
			for n := 0; !l.stop.Load(); n++ {
				payload := fmt.Sprintf("%d-%d", worker, n)
				err := l.one(b, use(), payload)
				l.mu.Lock()
				if err == nil {
					l.confirmed = append(l.confirmed, payload)
				} else {
					l.failed++
				}
				l.mu.Unlock()
			}
		})
	}
	w.Cleanup(l.end)
	return l
}

func (l *writing) one(b *outbox.Box, db *sql.DB, payload string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		time.Sleep(10 * time.Millisecond) // as a client waits that is told to come again
		return err
	}
	defer func() { _ = tx.Rollback() }() // no more than a safeguard behind a commit
	if _, err := tx.ExecContext(ctx, l.w.sql("INSERT INTO {}written (payload) VALUES (?)"), payload); err != nil {
		return err
	}
	if err := b.Send(ctx, tx, l.w.Name, payload); err != nil {
		return err
	}
	return tx.Commit()
}

func (l *writing) end() {
	l.stop.Store(true)
	l.all.Wait()
}

// count is how many transactions were confirmed.
func (l *writing) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.confirmed)
}

// goOn waits until more transactions were confirmed.
func (l *writing) goOn() {
	l.w.T.Helper()
	queuetest.Reaches(l.w.T, "transactions", l.count()+50, l.count)
}

// judge wants each transaction that is in db to be handled once, and no other, and those that were confirmed to be
// there.
func (l *writing) judge(db *sql.DB, b *outbox.Box) {
	l.w.T.Helper()
	l.end()
	rows, err := db.QueryContext(l.w.Context(), l.w.sql("SELECT payload FROM {}written"))
	queuetest.Must(l.w.T, err)
	defer rows.Close()
	written := map[string]bool{}
	for rows.Next() {
		var payload string
		queuetest.Must(l.w.T, rows.Scan(&payload))
		written[payload] = true
	}
	queuetest.Must(l.w.T, rows.Err())
	queuetest.Reaches(l.w.T, "handled", len(written), l.w.all)
	l.w.relayed(b)
	for payload := range written {
		if n := l.w.times(payload); n != 1 {
			l.w.Errorf("%s is handled %d times", payload, n)
		}
	}
	for _, payload := range l.confirmed {
		if !written[payload] {
			l.w.Errorf("%s was confirmed, and is lost", payload)
		}
	}
	if n := l.w.all(); n != len(written) {
		l.w.Errorf("%d are handled, of %d", n, len(written))
	}
	if l.failed == 0 {
		l.w.Error("no transaction failed: the database did not go away")
	}
}

// TestDatabaseRestarts: PostgreSQL is stopped and killed under load, and each row that was committed is one message.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	server := ownPostgres(t)
	w := newWorld(t, postgres, server.DSN, queuetest.SharedBase(t))
	b := w.box()
	w.run(b)
	w.run(w.box())
	w.consume()
	load := w.write(b, func() *sql.DB { return w.db })
	for _, end := range []func() error{server.Stop, func() error { server.Kill(); return nil }, server.Stop} {
		load.goOn()
		queuetest.Must(t, end())
		startAgain(t, server)
	}
	load.goOn()
	load.judge(w.db, b)
}

// TestDatabaseFailsOver: a replica that has all that was confirmed is promoted under load. Programs find it by another
// address, so they have another Box then.
func TestDatabaseFailsOver(t *testing.T) {
	t.Parallel()
	server := ownPostgres(t, "synchronous_standby_names=*")
	connect(t, "pgx", server.DSN) // it answers
	replica, err := server.Replica()
	queuetest.Must(t, err)
	t.Cleanup(func() { queuetest.Must(t, replica.Close()) })
	w := newWorld(t, postgres, server.DSN, queuetest.SharedBase(t))
	old := w.box()
	stop := w.run(old)
	w.consume()
	var use atomic.Pointer[sql.DB]
	use.Store(w.db)
	load := w.write(old, use.Load)
	load.goOn()
	server.Kill()
	queuetest.Must(t, replica.Promote())
	db := connect(t, "pgx", replica.DSN)
	b, err := outbox.New(db, w.dialect, w.publisher())
	queuetest.Must(t, err)
	use.Store(db)
	stop() // the old Box cannot reach its database: the new one waits for the end of the lease
	w.run(b)
	load.goOn()
	load.judge(db, b)
}

// TestLongestTransaction: a transaction stays open while many others commit, and then commits a row with a lower id.
func TestLongestTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgres, postgres.dsn(t), queuetest.SharedBase(t))
	commits := testkit.Size(100_000, 2_000)
	b := w.box()
	w.run(b)
	w.consume()
	long := w.begin()
	w.send(b, long, "late")
	var next atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := next.Add(1); int(n) <= commits && !t.Failed(); n = next.Add(1) {
				tx, err := w.db.BeginTx(w.Context(), nil)
				if err == nil {
					err = errors.Join(b.Send(w.Context(), tx, w.Name, fmt.Sprint(n)), tx.Commit())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	queuetest.Reaches(t, "handled", commits, w.all)
	queuetest.Must(t, long.Commit())
	queuetest.Reaches(t, "handled", commits+1, w.all)
	if first := w.number("SELECT id FROM {}outbox ORDER BY number DESC LIMIT 1"); first != 1 {
		t.Errorf("the row %d was numbered last", first)
	}
	if w.times("late") != 1 || w.all() != commits+1 {
		t.Errorf("handled %d times, and %d in all", w.times("late"), w.all())
	}
}

// TestViolation: a transaction that violates a unique key writes no message, also if the message was written first.
func TestViolation(t *testing.T) {
	w := newWorld(t, postgres, postgres.dsn(t), queuetest.SharedBase(t))
	b := w.box()
	w.run(b)
	w.consume()
	w.exec("CREATE TABLE {}unique (code text UNIQUE)")
	w.exec("INSERT INTO {}unique (code) VALUES ('taken')")
	for _, first := range []bool{true, false} {
		tx := w.begin()
		if first {
			w.send(b, tx, "refused")
		}
		_, err := tx.ExecContext(t.Context(), w.sql("INSERT INTO {}unique (code) VALUES ('taken')"))
		if refusal := (*pgconn.PgError)(nil); !errors.As(err, &refusal) || refusal.Code != "23505" {
			t.Fatal(err)
		}
		if err := b.Send(t.Context(), tx, w.Name, "refused"); err == nil {
			t.Error("a message was written in a transaction that had failed")
		}
		if err := tx.Commit(); err == nil {
			t.Error("it was committed")
		}
	}
	w.sends(b, "after")
	queuetest.Reaches(t, "handled", 1, w.all)
	w.relayed(b)
	if n := w.number("SELECT COUNT(*) FROM {}outbox"); n != 1 || w.times("refused") > 0 {
		t.Errorf("%d rows, and the message was handled %d times", n, w.times("refused"))
	}
}

// TestOtherClock: the database's clock is wrong by 30 s, and a delay of an hour ends an hour after Send all the same,
// by the clock of Redis.
func TestOtherClock(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{30 * time.Second, -30 * time.Second} {
		t.Run(wrong.String(), func(t *testing.T) {
			t.Parallel()
			server := ownPostgres(t)
			db := connect(t, "pgx", server.DSN)
			for _, statement := range []string{
				"CREATE SCHEMA wrong",
				fmt.Sprintf("CREATE FUNCTION wrong.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "+
					"$$ SELECT pg_catalog.clock_timestamp() + interval '%v' $$", wrong),
				"ALTER DATABASE postgres SET search_path = wrong, pg_catalog",
			} {
				_, err := db.ExecContext(t.Context(), statement)
				queuetest.Must(t, err)
			}
			w := newWorld(t, postgres, server.DSN, queuetest.SharedBase(t))
			b := w.box()
			begun := time.Now()
			w.commit(func(tx *sql.Tx) { w.send(b, tx, "x", delayqueue.WithKey("a"), delayqueue.WithDelay(time.Hour)) })
			sent := time.Now()
			created := time.UnixMicro(w.number("SELECT created_us FROM {}outbox"))
			if off := created.Sub(begun) - wrong; off < -time.Millisecond || off > sent.Sub(begun)+time.Millisecond {
				t.Fatalf("the clock is not as it should be: %v", off)
			}
			time.Sleep(1200 * time.Millisecond) // what passes before the relay begins belongs to the delay
			w.run(b)
			w.relayed(b)
			got, err := w.look.GetKey(t.Context(), "a")
			queuetest.Must(t, err)
			const rounding = 10 * time.Millisecond
			if got.Due.Before(begun.Add(time.Hour-rounding)) || got.Due.After(sent.Add(time.Hour+time.Second)) {
				t.Errorf("due %v after an hour", got.Due.Sub(begun.Add(time.Hour)))
			}
		})
	}
}

// A counter counts the transactions of a driver.
type counter struct {
	driver.Connector
	begun atomic.Int64
}

func (c *counter) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return &countedConn{conn, c}, err
}

type countedConn struct {
	driver.Conn
	*counter
}

func (c *countedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.begun.Add(1)
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

// TestNoTransaction: the relay of a PostgreSQL begins no transaction. If it were frozen in one, its lock would keep
// others from relaying.
func TestNoTransaction(t *testing.T) {
	w := newWorld(t, postgres, postgres.dsn(t), queuetest.SharedBase(t))
	config, err := pgx.ParseConfig(postgres.dsn(t))
	queuetest.Must(t, err)
	c := &counter{Connector: stdlib.GetConnector(*config)}
	db := sql.OpenDB(c)
	t.Cleanup(func() { queuetest.Must(t, db.Close()) })
	b, err := outbox.New(db, w.dialect, w.publisher())
	queuetest.Must(t, err)
	w.run(b)
	w.commit(func(tx *sql.Tx) {
		for i := range 5 {
			w.send(b, tx, fmt.Sprint(i), delayqueue.WithKey("a"), delayqueue.WithDelay(time.Hour))
		}
		queuetest.Must(t, b.Cancel(t.Context(), tx, w.Name, "a"))
		w.send(b, tx, "last", delayqueue.WithKey("a"), delayqueue.WithDelay(time.Hour))
	})
	w.relayed(b)
	if s := w.stats(b); s.Sent != 2 || s.Refused != 4 || w.number("SELECT COUNT(*) FROM {}outbox") != 3 {
		t.Errorf("%+v", s)
	}
	if n := c.begun.Load(); n > 0 {
		t.Errorf("%d transactions", n)
	}
	if tx, err := db.BeginTx(t.Context(), nil); err != nil || tx.Rollback() != nil || c.begun.Load() != 1 {
		t.Errorf("transactions are not counted: %v", err)
	}
}
