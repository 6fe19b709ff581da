package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// A step is a strike, or what is done with the long transaction.
type step struct {
	name string
	do   func(ctx context.Context) error
}

// steps are all steps in their order, and how often each kind of strike is among them. While the long transaction is
// open, the database stays up. It fails over in the middle of the strikes before.
func (w *world) steps() (steps []step, want map[string]int) {
	want = map[string]int{}
	add := func(rounds int, of ...string) {
		for range rounds {
			w.random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
			for _, kind := range of {
				want[kind]++
				steps = append(steps, step{kind, func(ctx context.Context) error { return w.struck(ctx, kind) }})
			}
		}
	}
	add(w.rounds, slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == databasePromoted })...)
	add(1, databasePromoted)
	add(1, databaseKilled)
	var open *long
	steps = append(steps, step{"long transaction", func(ctx context.Context) (err error) {
		open, err = w.openLong(ctx)
		return err
	}})
	add(w.rounds, serviceKilled, relayKilled, relayFrozen, redisKilled, redisFailedOver, redisRestored)
	steps = append(steps, step{"its commit", func(context.Context) error { return open.commit() }})
	add(1, databaseStopped, relayKilled)
	return steps, want
}

// storm takes the steps evenly over the orders, and waits until all orders were tried.
func (w *world) storm(ctx context.Context, steps []step, progress io.Writer) error {
	begun := time.Now()
	said, saved := begun, time.Time{}
	share := func(n int) int { return w.orders * n / (len(steps) + 1) }
	for next := 0; next < len(steps) || len(w.books.ended) < services; {
		if !wait(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
		if err := w.books.catchUp(); err != nil {
			return err
		}
		if time.Since(saved) > w.age/4 {
			if err := w.save(ctx); err != nil {
				return err
			}
			saved = time.Now()
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			fmt.Fprintf(progress, "%6s  %d of %d orders tried\n", time.Since(begun).Round(time.Second), w.books.tried, w.orders)
		}
		for name, p := range w.services {
			if p.Ended() {
				return fmt.Errorf("service %s ended", name)
			}
		}
		if next < len(steps) && (w.books.tried >= share(next+1) || len(w.books.ended) == services) {
			from := time.Now()
			if err := steps[next].do(ctx); err != nil {
				return err
			}
			fmt.Fprintf(progress, "%6s  %s, in %v\n", from.Sub(begun).Round(time.Second), steps[next].name,
				time.Since(from).Round(time.Millisecond))
			next++
		}
	}
	return nil
}

// settle replaces the messages of orders that are still parked, and waits until none waits, for some seconds.
func (w *world) settle(ctx context.Context, progress io.Writer) error {
	fmt.Fprintln(progress, "all orders were tried")
	book, err := openLedger(w.dir, "sweep")
	if err != nil {
		return err
	}
	defer book.file.Close()
	ids, err := w.ids(ctx, "SELECT id FROM orders WHERE parked")
	if err != nil {
		return err
	}
	for id := range ids {
		if err := replace(ctx, w.db, w.box, book, id); err != nil {
			return err
		}
	}
	w.box.Committed()
	var busy time.Time
	var rows, messages int64
	err = w.await(ctx, "no row and no message waits", func(ctx context.Context) bool {
		var err error
		if rows, messages, err = w.left(ctx); err != nil || rows+messages > 0 {
			busy = time.Now()
		}
		return time.Since(busy) > calm
	})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(progress, "%d rows and %d messages are left: %v\n", rows, messages, err)
		return nil // the judge says what is wrong
	}
	return err
}

// calm is longer than a relay takes to see that Redis has forgotten something.
const calm = 4 * time.Second

// left is how many rows wait, and how many messages are in the queue.
func (w *world) left(ctx context.Context) (rows, messages int64, err error) {
	stats, err := w.box.Stats(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, s := range stats {
		rows += s.Waiting
	}
	counts, err := w.queue.Counts(ctx)
	return rows, counts.Pending + counts.Ready + counts.Unack + counts.Retry, err
}

// ids are what a query finds.
func (w *world) ids(ctx context.Context, query string) (map[string]bool, error) {
	rows, err := w.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		found[id] = true
	}
	return found, rows.Err()
}

// evidence is what the judge sees, when all is over.
func (w *world) evidence(ctx context.Context) (e evidence, err error) {
	for _, p := range w.services {
		p.Terminate()
	}
	if err := w.await(ctx, "the services end", func(context.Context) bool {
		for _, p := range w.services {
			if !p.Ended() {
				return false
			}
		}
		return true
	}); err != nil {
		return e, err
	}
	if err := w.books.catchUp(); err != nil {
		return e, err
	}
	e.entries, e.strikes = w.books.entries, w.strikes
	if e.orders, err = w.ids(ctx, "SELECT id FROM orders"); err != nil {
		return e, err
	}
	err = w.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM delayqueue_outbox WHERE kind = 'send'").Scan(&e.sends)
	if err != nil {
		return e, err
	}
	stats, err := w.box.Stats(ctx)
	if err != nil || len(stats) != 1 {
		return e, fmt.Errorf("%d queues: %w", len(stats), err)
	}
	e.stats = stats[0]
	if _, e.live, err = w.left(ctx); err != nil {
		return e, err
	}
	balance, err := w.queue.Balance(ctx)
	e.missing = balance.Unaccounted
	return e, err
}
