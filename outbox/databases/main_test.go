package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/dbtest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/outbox"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

func TestMain(m *testing.M) {
	queuetest.AtEnd(func() {
		for _, k := range kinds {
			if k.server == nil {
				continue
			}
			if err := k.server.Close(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	})
	os.Exit(queuetest.RunTests(m))
}

// A kind is a kind of database.
type kind struct {
	name    string
	driver  string
	dialect outbox.Dialect
	start   func(settings ...string) (*dbtest.Server, error) // nil: there is no server

	once   sync.Once
	server *dbtest.Server
	err    error
}

var (
	postgres = &kind{name: "PostgreSQL", driver: "pgx", dialect: outbox.Postgres, start: dbtest.Postgres}
	mariadb  = &kind{name: "MariaDB", driver: "mysql", dialect: outbox.MySQL, start: dbtest.MariaDB}
	sqlite   = &kind{name: "SQLite", driver: "sqlite", dialect: outbox.SQLite}
	kinds    = []*kind{postgres, mariadb, sqlite}
)

// dsn names a database of this kind: of SQLite one of the test's own.
func (k *kind) dsn(t *testing.T) string {
	t.Helper()
	if k.start == nil {
		return filepath.Join(t.TempDir(), "db") + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)"
	}
	k.once.Do(func() { k.server, k.err = k.start("max_connections=300") })
	queuetest.Must(t, k.err)
	return k.server.DSN
}

// connect returns when the database answers.
func connect(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	queuetest.Must(t, err)
	t.Cleanup(func() { queuetest.Must(t, db.Close()) })
	queuetest.Eventually(t, "the database answers", func() bool { return db.PingContext(t.Context()) == nil })
	return db
}

// A world is a queue, and a database with an outbox.
type world struct {
	*testing.T
	*queuetest.Base
	kind    *kind
	dialect outbox.Dialect
	db      *sql.DB
	look    *ops.Queue

	mu      sync.Mutex
	handled map[string]int // by payload
}

var worlds atomic.Int64

// newWorld makes a world with tables of its own.
func newWorld(t *testing.T, k *kind, dsn string, base *queuetest.Base) *world {
	t.Helper()
	w := &world{T: t, Base: base, kind: k, dialect: k.dialect.WithPrefix(fmt.Sprintf("t%d_", worlds.Add(1))),
		db: connect(t, k.driver, dsn), handled: map[string]int{}}
	w.look = ops.Of(delayqueue.NewMonitor(w.Name, w.Cli))
	w.schema(w.dialect)
	w.schema(w.dialect)
	return w
}

// each runs a test on each kind of database.
func each(t *testing.T, test func(w *world)) {
	eachOf(t, kinds, test)
}

func eachOf(t *testing.T, kinds []*kind, test func(w *world)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, k, k.dsn(t), queuetest.SharedBase(t)))
		})
	}
}

// schema makes the tables as a tool does that knows no more than where a statement ends.
func (w *world) schema(d outbox.Dialect) {
	w.T.Helper()
	for _, statement := range strings.SplitAfter(outbox.Schema(d), ";\n") {
		if strings.TrimSpace(statement) != "" {
			w.exec(statement)
		}
	}
}

func (w *world) exec(query string, args ...any) {
	w.T.Helper()
	_, err := w.db.ExecContext(w.Context(), w.sql(query), args...)
	queuetest.Must(w.T, err)
}

// sql has the names of the tables, and the placeholders of the database: at most two.
func (w *world) sql(query string) string {
	query = strings.ReplaceAll(query, "{}", w.dialect.Prefix())
	if w.kind == postgres {
		query = strings.Replace(strings.Replace(query, "?", "$1", 1), "?", "$2", 1)
	}
	return query
}

// number is what a query finds.
func (w *world) number(query string) (n int64) {
	w.T.Helper()
	queuetest.Must(w.T, w.db.QueryRowContext(w.Context(), w.sql(query)).Scan(&n))
	return n
}

func (w *world) publisher() *delayqueue.Publisher {
	return delayqueue.NewPublisher(w.Name, w.Cli).WithLogger(w.Logger())
}

// box makes a box for these queues; none: for the world's.
func (w *world) box(queues ...outbox.Queue) *outbox.Box {
	w.T.Helper()
	if queues == nil {
		queues = append(queues, w.publisher())
	}
	b, err := outbox.New(w.db, w.dialect, queues...)
	queuetest.Must(w.T, err)
	return b.WithLogger(w.Logger())
}

// run runs a box until the test ends, or stop is called.
func (w *world) run(b *outbox.Box) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		queuetest.Must(w.T, queuetest.Receive(w.T, "the end of Run", ended))
	})
	w.Cleanup(stop)
	return stop
}

// consume handles messages until the test ends.
func (w *world) consume() {
	q := delayqueue.NewQueue(w.Name, w.Cli, func(payload string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.handled[payload]++
		return true
	}).WithConcurrent(8).WithLogger(w.Logger())
	q.StartConsume()
	w.Stops(q)
}

// times is how often a payload was handled.
func (w *world) times(payload string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handled[payload]
}

// all is how many handlers have run.
func (w *world) all() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, times := range w.handled {
		n += times
	}
	return n
}

// commit runs f in a transaction, and commits it.
func (w *world) commit(f func(tx *sql.Tx)) {
	w.T.Helper()
	tx := w.begin()
	f(tx)
	queuetest.Must(w.T, tx.Commit())
}

func (w *world) begin() *sql.Tx {
	w.T.Helper()
	tx, err := w.db.BeginTx(w.Context(), nil)
	queuetest.Must(w.T, err)
	return tx
}

func (w *world) send(b *outbox.Box, tx outbox.Tx, payload string, opts ...delayqueue.MsgOption) {
	w.T.Helper()
	queuetest.Must(w.T, b.Send(w.Context(), tx, w.Name, payload, opts...))
}

// sends commits messages with these payloads.
func (w *world) sends(b *outbox.Box, payloads ...string) {
	w.T.Helper()
	w.commit(func(tx *sql.Tx) {
		for _, payload := range payloads {
			w.send(b, tx, payload)
		}
	})
}

func (w *world) stats(b *outbox.Box) outbox.Stats {
	w.T.Helper()
	stats, err := b.Stats(w.Context())
	queuetest.Must(w.T, err)
	for _, s := range stats {
		if s.Queue == w.Name {
			return s
		}
	}
	return outbox.Stats{}
}

// relayed waits until no row waits.
func (w *world) relayed(b *outbox.Box) {
	w.T.Helper()
	queuetest.Eventually(w.T, "no row waits", func() bool { return w.stats(b).Waiting == 0 })
}

// live is the number of messages in the queue.
func (w *world) live() int64 {
	w.T.Helper()
	var counts ops.Counts
	queuetest.Eventually(w.T, "Redis says how many messages there are", func() (done bool) {
		var err error
		counts, err = w.look.Counts(w.Context())
		return err == nil || errors.Is(err, delayqueue.ErrNoQueue)
	})
	return counts.Pending + counts.Ready + counts.Unack + counts.Retry
}

// forget has Redis forget the queue.
func (w *world) forget() error {
	return w.look.DeleteQueue(context.Background(), true)
}
