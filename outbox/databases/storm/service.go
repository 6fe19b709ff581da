package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
)

// queueName is also the first part of keys.
const queueName = "orders"

// A task is what a service is started with, in JSON.
type task struct {
	Name       string
	Dir        string // of its ledger
	DSN, Redis string // the addresses of proxies
	From, To   int    // the numbers of its orders
	Over       time.Duration
	Seed       uint64
}

const (
	workers  = 4                // of a service, which write orders
	maxDelay = 2 * time.Second  // of messages
	parked   = time.Hour        // the delay of messages that must be replaced before they are due
	patience = 10 * time.Second // of a transaction
	mostOpen = 2                // transactions that a service leaves open until it dies
	fewOf    = 20               // of so many orders one is parked, and one has a message that is taken out again
)

// A service writes orders, relays their messages, and handles them.
type service struct {
	task
	db   *sql.DB
	box  *outbox.Box
	book ledger

	next atomic.Int64
	last atomic.Pointer[string] // an order that was committed
	open atomic.Int64           // transactions that are left open
}

// serve is the main function of a service.
func serve(text string) error {
	s := &service{}
	if err := json.Unmarshal([]byte(text), &s.task); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	var err error
	if s.book, err = openLedger(s.Dir, s.Name); err != nil {
		return err
	}
	if s.db, err = sql.Open("pgx", s.DSN); err != nil {
		return err
	}
	s.db.SetMaxIdleConns(2 * workers)
	queue := delayqueue.NewQueue(queueName, redis.NewClient(&redis.Options{Addr: s.Redis}), nil).WithHandler(s.handle).
		WithConcurrent(8).WithLease(5 * time.Second)
	if s.box, err = outbox.New(s.db, outbox.Postgres, queue); err != nil {
		return err
	}
	var all sync.WaitGroup
	var relayed, consumed error
	all.Go(func() { relayed = s.box.Run(ctx) })
	all.Go(func() { consumed = queue.Run(ctx) })
	all.Go(func() { s.writeAll(ctx) })
	all.Wait()
	return errors.Join(relayed, consumed)
}

func (s *service) handle(_ context.Context, msg *delayqueue.Message) error {
	s.book.write(entry{Kind: handled, Order: msg.Payload, ID: msg.ID})
	return nil
}

// writeAll tries all orders of this service, evenly over time.
func (s *service) writeAll(ctx context.Context) {
	begun := time.Now()
	s.next.Store(int64(s.From))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for n := int(s.next.Add(1) - 1); n < s.To && ctx.Err() == nil; n = int(s.next.Add(1) - 1) {
				if wait(ctx, time.Until(begun.Add(s.Over*time.Duration(n-s.From)/time.Duration(s.To)))) {
					s.place(ctx, n)
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() == nil {
		s.book.write(entry{Kind: finished})
	}
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// begin begins a transaction as soon as the database is there.
func (s *service) begin(ctx context.Context) *sql.Tx {
	for {
		if tx, err := s.db.BeginTx(ctx, nil); err == nil || ctx.Err() != nil {
			return tx
		}
		wait(ctx, 100*time.Millisecond)
	}
}

// place writes an order and its message in one transaction, of which a third rolls back.
func (s *service) place(ctx context.Context, n int) {
	id := fmt.Sprintf("%s-%06d", s.Name, n)
	r := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	delay := time.Duration(r.Int64N(int64(maxDelay))).Truncate(time.Millisecond)
	aside := r.IntN(fewOf) == 0 && n%3 != 0
	if aside {
		delay = parked
	}
	tx := s.begin(ctx)
	if tx == nil {
		return
	}
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.book.write(entry{Kind: tried, Order: id, Delay: delay.Microseconds()})
	_, err := tx.ExecContext(limit, "INSERT INTO orders (id, code, parked) VALUES ($1, $1, $2)", id, aside)
	if err == nil && r.IntN(fewOf) == 0 { // a message that is taken out again in the same transaction
		err = errors.Join(s.box.Send(limit, tx, queueName, id, delayqueue.WithKey(keyOf(id)), delayqueue.WithDelay(parked)),
			s.box.Cancel(limit, tx, queueName, keyOf(id)))
	}
	if err == nil {
		err = s.box.Send(limit, tx, queueName, id, delayqueue.WithKey(keyOf(id)), delayqueue.WithDelay(delay))
	}
	if err == nil && n%3 == 0 {
		s.end(limit, tx, id, r.IntN(3))
		return
	}
	if s.commit(tx, id, err) && aside && wait(ctx, rand.N(time.Second)) {
		s.replace(ctx, id)
	}
}

func keyOf(id string) string { return queueName + "-" + id }

// commit commits a transaction unless it has failed.
func (s *service) commit(tx *sql.Tx, id string, err error) bool {
	if err == nil {
		err = tx.Commit()
	} else {
		_ = tx.Rollback() // nothing was to be committed
	}
	s.box.Committed()
	if err != nil {
		s.book.write(entry{Kind: unsure, Order: id})
		return false
	}
	s.last.Store(&id)
	s.book.write(entry{Kind: told, Order: id})
	return true
}

// end ends a transaction without a commit: by a ROLLBACK, because of a unique key, or with the process.
func (s *service) end(ctx context.Context, tx *sql.Tx, id string, how int) {
	if last := s.last.Load(); how == 1 && last != nil {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (id, code) VALUES ($1, $2)", id+"-second", *last)
		if refusal := (*pgconn.PgError)(nil); errors.As(err, &refusal) && refusal.Code == "23505" {
			s.book.write(entry{Kind: violated, Order: id})
		}
	}
	if how == 2 && s.open.Add(1) <= mostOpen {
		return // the connection is the transaction's until one of them dies
	}
	kind := back
	if tx.Rollback() != nil {
		kind = unsure
	}
	s.book.write(entry{Kind: kind, Order: id})
}

// replace takes out the message of an order that is parked, and sends another one that is due soon. It tries until
// that is committed.
func (s *service) replace(ctx context.Context, id string) {
	for ctx.Err() == nil {
		limit, cancel := context.WithTimeout(ctx, patience)
		err := replace(limit, s.db, s.box, s.book, id)
		cancel()
		s.box.Committed()
		if err == nil {
			return
		}
		wait(ctx, 100*time.Millisecond)
	}
}

func replace(ctx context.Context, db *sql.DB, box *outbox.Box, book ledger, id string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no more than a safeguard behind a commit
	result, err := tx.ExecContext(ctx, "UPDATE orders SET parked = false WHERE id = $1 AND parked", id)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return err // an earlier try was committed
	}
	delay := rand.N(maxDelay).Truncate(time.Millisecond)
	book.write(entry{Kind: tried, Order: id, Delay: delay.Microseconds(), Again: true})
	if err := box.Cancel(ctx, tx, queueName, keyOf(id)); err != nil {
		return err
	}
	err = box.Send(ctx, tx, queueName, id, delayqueue.WithKey(keyOf(id)), delayqueue.WithDelay(delay))
	if err != nil {
		return err
	}
	return tx.Commit()
}
