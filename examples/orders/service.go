package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/outbox"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"
)

// A database has the orders, and the outbox.
type database struct {
	*sql.DB
	dialect outbox.Dialect
	about   string
}

// openDatabase opens the PostgreSQL of DATABASE_URL, or a SQLite file, and makes the tables.
func openDatabase(ctx context.Context, file string) (*database, error) {
	d := &database{dialect: outbox.SQLite, about: "SQLite, " + file + " (DATABASE_URL=postgres://… uses PostgreSQL)"}
	driver, dsn := "sqlite", file+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_txlock=immediate"
	if url := os.Getenv("DATABASE_URL"); url != "" {
		driver, dsn = "pgx", url
		d.dialect, d.about = outbox.Postgres, "PostgreSQL (DATABASE_URL)"
	}
	var err error
	if d.DB, err = sql.Open(driver, dsn); err != nil {
		return nil, err
	}
	schema := "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT NOT NULL, state TEXT NOT NULL);\n" +
		outbox.Schema(d.dialect)
	for _, statement := range strings.SplitAfter(schema, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := d.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", d.about, err), d.Close())
		}
	}
	return d, nil
}

// sql writes the placeholders of the database in place of question marks.
func (d *database) sql(query string) string {
	if d.dialect.Name() != outbox.Postgres.Name() {
		return query
	}
	for i := 1; strings.Contains(query, "?"); i++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(i), 1)
	}
	return query
}

// The states of an order.
const (
	unpaid = "unpaid"
	paid   = "paid"
	closed = "closed"
)

var (
	errGone   = errors.New("there is no such order")
	errClosed = errors.New("the order is closed")
)

// A service places orders, takes payments, and closes what is not paid in time.
type service struct {
	db     *database
	queue  *delayqueue.DelayQueue
	box    *outbox.Box
	unpaid time.Duration
	log    *log.Logger
}

func newService(db *database, cli redis.UniversalClient, unpaid time.Duration, log *log.Logger) (*service, error) {
	s := &service{db: db, unpaid: unpaid, log: log}
	s.queue = delayqueue.NewQueue("example-orders", cli, nil).WithHandler(s.close).WithConcurrent(8)
	var err error
	s.box, err = outbox.New(db.DB, db.dialect, s.queue)
	return s, err
}

// place writes the order and the message that closes it, in one transaction.
func (s *service) place(ctx context.Context, item string) (id string, err error) {
	id = rand.Text()
	err = s.db.within(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, s.db.sql("INSERT INTO orders (id, item, state) VALUES (?, ?, ?)"), id, item, unpaid)
		if err != nil {
			return err
		}
		return s.box.Send(ctx, tx, s.queue.Name(), id, delayqueue.WithKey("order-"+id), delayqueue.WithDelay(s.unpaid))
	})
	s.box.Committed()
	return id, err
}

// pay takes a payment, unless the order is closed. The message that would close it is taken back, which saves work: it
// would find the order paid.
func (s *service) pay(ctx context.Context, id string) error {
	err := s.db.within(ctx, func(tx *sql.Tx) error {
		if done, err := s.move(ctx, tx, id, paid); err != nil || !done {
			return err
		}
		return s.box.Cancel(ctx, tx, s.queue.Name(), "order-"+id)
	})
	if err != nil {
		return err
	}
	s.box.Committed()
	switch state, err := s.state(ctx, id); {
	case err != nil:
		return err
	case state == closed:
		return errClosed
	}
	return nil
}

// close handles a message whose time has come. It may run twice, so one statement decides.
func (s *service) close(ctx context.Context, msg *delayqueue.Message) error {
	done, err := s.move(ctx, s.db, msg.Payload, closed)
	if done {
		s.log.Printf("order %s is closed", msg.Payload)
	}
	return err
}

// move moves an order that is unpaid to another state, and says whether it was.
func (s *service) move(ctx context.Context, tx outbox.Tx, id, state string) (bool, error) {
	const query = "UPDATE orders SET state = ? WHERE id = ? AND state = ?"
	result, err := tx.ExecContext(ctx, s.db.sql(query), state, id, unpaid)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

func (s *service) state(ctx context.Context, id string) (state string, err error) {
	err = s.db.QueryRowContext(ctx, s.db.sql("SELECT state FROM orders WHERE id = ?"), id).Scan(&state)
	if errors.Is(err, sql.ErrNoRows) {
		return "", errGone
	}
	return state, err
}

// counts is how many orders are in which state.
func (d *database) counts(ctx context.Context) (map[string]int, error) {
	rows, err := d.QueryContext(ctx, "SELECT state, COUNT(*) FROM orders GROUP BY state")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var state string
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, err
		}
		counts[state] = n
	}
	return counts, rows.Err()
}

// within commits what f does, unless it fails.
func (d *database) within(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(ctx context.Context, r *http.Request) (status int, text string, err error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), patience)
			defer cancel()
			status, text, err := f(ctx, r)
			switch {
			case errors.Is(err, errGone):
				status, text = http.StatusNotFound, err.Error()
			case errors.Is(err, errClosed):
				status, text = http.StatusConflict, err.Error()
			case err != nil:
				s.log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
				status, text = http.StatusInternalServerError, "try again"
			}
			w.WriteHeader(status)
			fmt.Fprintln(w, text)
		})
	}
	handle("POST /orders", func(ctx context.Context, r *http.Request) (int, string, error) {
		item, err := io.ReadAll(io.LimitReader(r.Body, 1000))
		if err != nil {
			return 0, "", err
		}
		id, err := s.place(ctx, string(item))
		return http.StatusCreated, id, err
	})
	handle("POST /orders/{id}/pay", func(ctx context.Context, r *http.Request) (int, string, error) {
		return http.StatusOK, paid, s.pay(ctx, r.PathValue("id"))
	})
	handle("GET /orders/{id}", func(ctx context.Context, r *http.Request) (int, string, error) {
		state, err := s.state(ctx, r.PathValue("id"))
		return http.StatusOK, state, err
	})
	handle("GET /count", func(ctx context.Context, r *http.Request) (int, string, error) {
		counts, err := s.db.counts(ctx)
		return http.StatusOK, fmt.Sprintf("%d unpaid, %d paid, %d closed", counts[unpaid], counts[paid], counts[closed]), err
	})
	return mux
}
