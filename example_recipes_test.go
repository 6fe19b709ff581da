package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/typed"
)

// These are the recipes of docs/recipes.md.

// A kind is a name and a type; typed/ has Examples that run.
func Example_typed() {
	redisCli, end := embedded()
	defer end()

	type Order struct{ ID int64 }
	var CloseOrder = typed.Kind[Order]("close-order")

	closeIfUnpaid := func(context.Context, int64) error { return nil }
	ctx := context.Background()
	queue := delayqueue.NewQueue("orders", redisCli, nil)
	mux := typed.NewMux()
	typed.Handle(mux, CloseOrder, func(ctx context.Context, o Order, msg *delayqueue.Message) error {
		return closeIfUnpaid(ctx, o.ID)
	})
	queue.WithHandler(mux.Handler)

	_, err := CloseOrder.Send(ctx, queue, Order{ID: 42}, delayqueue.WithDelay(15*time.Minute))
	if err != nil {
		panic(err)
	}
}

// Each change replaces the message that waits, and puts it off.
func ExampleWithKey_debounce() {
	redisCli, end := embedded()
	defer end()

	ctx := context.Background()
	index := delayqueue.NewPublisher("index", redisCli)
	for _, document := range []string{"draft", "second draft", "final"} {
		_, err := index.Send(ctx, document, delayqueue.WithKey("document-42", delayqueue.Replace),
			delayqueue.WithDelay(5*time.Second), delayqueue.WithMaxWait(time.Minute))
		if err != nil {
			panic(err)
		}
	}
	monitor := ops.Of(delayqueue.NewMonitor("index", redisCli))
	msg, err := monitor.GetKey(ctx, "document-42")
	if err != nil {
		panic(err)
	}
	counts, err := monitor.Counts(ctx)
	fmt.Println(msg.Payload, msg.State, counts.Pending, err)
	// Output: final pending 1 <nil>
}

// The first of many is sent, and no other until five seconds after it was handled.
func ExampleWithKeyHold_throttle() {
	redisCli, end := embedded()
	defer end()

	ctx := context.Background()
	alerts := delayqueue.NewPublisher("alerts", redisCli)
	alert := func() error {
		_, err := alerts.Send(ctx, "disk full on db-1", delayqueue.WithKey("disk-db-1"),
			delayqueue.WithKeyHold(5*time.Second))
		if errors.Is(err, delayqueue.ErrDuplicateKey) {
			err = nil // somebody was told
		}
		return err
	}
	for range 3 {
		if err := alert(); err != nil {
			panic(err)
		}
	}
	counts, err := delayqueue.NewMonitor("alerts", redisCli).Counts(ctx)
	fmt.Println(counts.Ready, err)
	// Output: 1 <nil>
}

// A caller repeats its request, and the work is done once.
func ExampleWithKeyHold_webhook() {
	redisCli, end := embedded()
	defer end()

	ctx := context.Background()
	worked := make(chan string, 2)
	payments := delayqueue.NewQueue("payments", redisCli, func(body string) bool { worked <- body; return true })
	webhook := func(eventID, body string) *delayqueue.MessageInfo {
		info, err := payments.Send(ctx, body, delayqueue.WithKey(eventID, delayqueue.Keep),
			delayqueue.WithKeyHold(24*time.Hour))
		if err != nil {
			panic(err)
		}
		return info
	}
	first := webhook("evt_1", "paid")
	done := payments.StartConsume()
	fmt.Println("worked on", <-worked)
	payments.StopConsume()
	<-done // it is acked
	again := webhook("evt_1", "paid")
	fmt.Println(again.Existed, again.ID == first.ID, len(worked))
	// Output:
	// worked on paid
	// true true 0
}

type outboxRow struct {
	id      int64
	payload string
}

// Rows of a table become messages, each once, however many relays send them and however often.
func ExampleWithSequence() {
	redisCli, end := embedded()
	defer end()

	rows := []outboxRow{{1, "order 41"}, {2, "order 42"}, {5, "order 43"}}
	rowsAfter := func(id int64) (after []outboxRow) {
		for _, row := range rows {
			if row.id > id {
				after = append(after, row)
			}
		}
		return after
	}
	ctx := context.Background()
	orders, monitor := delayqueue.NewPublisher("orders", redisCli), ops.Of(delayqueue.NewMonitor("orders", redisCli))
	relay := func() error {
		last, err := monitor.Sequence(ctx, "outbox") // where any relay has come
		if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
			return err
		}
		for _, row := range rowsAfter(last) {
			_, err := orders.Send(ctx, row.payload, delayqueue.WithSequence("outbox", row.id))
			if err != nil && !errors.Is(err, delayqueue.ErrSequence) { // another relay has sent this one
				return err
			}
		}
		return nil
	}
	for range 2 { // the second one finds nothing to do
		if err := relay(); err != nil {
			panic(err)
		}
	}
	_, err := orders.Send(ctx, "order 42", delayqueue.WithSequence("outbox", 2))
	var passed *delayqueue.SequenceError
	if errors.As(err, &passed) {
		fmt.Println("2 was sent: the outbox is at", passed.Last)
	}
	counts, err := monitor.Counts(ctx)
	fmt.Println(counts.Ready, err)
	// Output:
	// 2 was sent: the outbox is at 5
	// 3 <nil>
}

// A caller waits for what the handler says.
func ExampleDelayQueue_Call() {
	redisCli, end := embedded()
	defer end()

	render := func(month string) (string, error) { return "the report of " + month, nil }
	reports := delayqueue.NewQueue("reports", redisCli, nil)
	reports.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		pdf, err := render(msg.Payload)
		if err != nil {
			return err // what was said is void
		}
		return delayqueue.SetResult(ctx, pdf)
	})
	done := reports.StartConsume()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wait := func() string {
		result, err := reports.Call(ctx, "june", delayqueue.WithRetention(time.Hour))
		switch {
		case errors.Is(err, delayqueue.ErrNoResult):
			return "taken back by somebody"
		case errors.Is(err, delayqueue.ErrSuperseded):
			return "replaced while it was handled, and not done: " + result.Err
		case err != nil:
			return "ask again later for " + result.ID // ctx has ended: the message is handled all the same
		case result.State == delayqueue.StateGarbage:
			return "given up: " + result.Err
		}
		return result.Value
	}
	fmt.Println(wait())
	reports.StopConsume()
	<-done
	// Output: the report of june
}

// Each comment is a part of the message that waits; its handler gets all of them.
func ExampleWithKey_digest() {
	redisCli, end := embedded()
	defer end()

	ctx := context.Background()
	digests := delayqueue.NewQueue("digests", redisCli, nil)
	mail := func(_ context.Context, reader, text string) error {
		fmt.Println(reader, "gets", text)
		digests.StopConsume()
		return nil
	}
	for _, comment := range []string{"nice", "indeed", "I disagree"} {
		_, err := digests.Send(ctx, comment, delayqueue.WithKey("reader-42", delayqueue.Append), delayqueue.WithMaxParts(100),
			delayqueue.WithDelay(time.Minute), delayqueue.WithMaxWait(10*time.Minute))
		if err != nil {
			panic(err)
		}
	}
	monitor := delayqueue.NewMonitor("digests", redisCli)
	if err := monitor.RescheduleKey(ctx, "reader-42", time.Now()); err != nil { // a minute later
		panic(err)
	}
	digests.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		return mail(ctx, msg.Key, strings.Join(msg.Parts, "; "))
	})
	<-digests.StartConsume()
	// Output: reader-42 gets nice; indeed; I disagree
}

// chain handles an order in steps.
func chain(queue *delayqueue.DelayQueue, week time.Duration) {
	queue.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		switch msg.Payload {
		case "charge":
			return delayqueue.Then(ctx, "ship")
		case "ship":
			return delayqueue.Then(ctx, "ask for a review", delayqueue.WithDelay(week))
		}
		return nil
	})
}

// A handler says what follows; it is sent if and only if the delivery is acked.
func ExampleThen() {
	redisCli, end := embedded()
	defer end()

	queue := delayqueue.NewQueue("orders", redisCli, nil)
	chain(queue, 20*time.Millisecond)
	queue.WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
		return func(ctx context.Context, msg *delayqueue.Message) error {
			fmt.Println(msg.Payload)
			if msg.Payload == "ask for a review" {
				queue.StopConsume()
			}
			return next(ctx, msg)
		}
	})
	if _, err := queue.Send(context.Background(), "charge"); err != nil {
		panic(err)
	}
	<-queue.StartConsume()
	// Output:
	// charge
	// ship
	// ask for a review
}

// fanOut handles a newsletter by a message for each reader.
func fanOut(mails *delayqueue.DelayQueue, readers []string, mail func(ctx context.Context, reader string) error) {
	mails.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		if msg.Payload != "newsletter" {
			return mail(ctx, msg.Payload)
		}
		for _, reader := range readers {
			if err := delayqueue.Then(ctx, reader); err != nil {
				return err
			}
		}
		return nil
	})
}

// One message becomes many, with its ack.
func ExampleThen_fanOut() {
	redisCli, end := embedded()
	defer end()

	mails := delayqueue.NewQueue("mails", redisCli, nil)
	fanOut(mails, []string{"ann", "bob"}, func(_ context.Context, reader string) error {
		fmt.Println("a mail to", reader)
		return nil
	})
	if _, err := mails.Send(context.Background(), "newsletter"); err != nil {
		panic(err)
	}
	fmt.Println(mails.Drain(context.Background()))
	// Output:
	// a mail to ann
	// a mail to bob
	// 3 <nil>
}

// sendRows sends a report, which waits for the rows of an import, and the rows. It may be called again.
func sendRows(ctx context.Context, imports *delayqueue.DelayQueue, id string, rows []string) error {
	_, err := imports.Send(ctx, "report", delayqueue.WithKey(id, delayqueue.Keep), delayqueue.WithKeyHold(24*time.Hour),
		delayqueue.WithCountdown(len(rows)), delayqueue.WithDelay(time.Hour))
	if err != nil {
		return err
	}
	batch := make([]delayqueue.Outgoing, len(rows))
	for i, row := range rows {
		batch[i] = delayqueue.Outgoing{Payload: row,
			Options: []delayqueue.MsgOption{delayqueue.WithCounts(id), delayqueue.WithHeader("import", id),
				delayqueue.WithKey(fmt.Sprint(id, "-row-", i), delayqueue.Keep), delayqueue.WithKeyHold(24 * time.Hour)}}
	}
	_, err = imports.SendBatch(ctx, batch)
	return err
}

// A message is due when the acks of all others have counted.
func ExampleWithCountdown() {
	redisCli, end := embedded()
	defer end()

	imports := delayqueue.NewQueue("imports", redisCli, func(payload string) bool { fmt.Println(payload); return true })
	ctx := context.Background()
	for range 2 { // the second time changes nothing
		if err := sendRows(ctx, imports, "import-7", []string{"a", "b", "c"}); err != nil {
			panic(err)
		}
	}
	fmt.Println(imports.Drain(ctx))
	// Output:
	// a
	// b
	// c
	// report
	// 4 <nil>
}

// sumUp handles rows, and their results together.
func sumUp(imports *delayqueue.DelayQueue, rows int, importRow func(ctx context.Context, row string) (string, error),
	mail func(ctx context.Context, text string) error) {
	imports.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		if msg.Parts != nil {
			return mail(ctx, strings.Join(msg.Parts, "; "))
		}
		result, err := importRow(ctx, msg.Payload)
		if err != nil {
			return err
		}
		return delayqueue.Then(ctx, result, delayqueue.WithKey("results", delayqueue.Append), delayqueue.WithMaxParts(rows),
			delayqueue.WithDelay(time.Hour), delayqueue.WithMaxWait(time.Hour))
	})
}

// The results of many handlers come together in one message.
func ExampleThen_results() {
	redisCli, end := embedded()
	defer end()

	rows := []string{"a", "b", "c"}
	imports := delayqueue.NewQueue("imports", redisCli, nil)
	sumUp(imports, len(rows), func(_ context.Context, row string) (string, error) { return row + " is in", nil },
		func(_ context.Context, text string) error { fmt.Println(text); return nil })
	for _, row := range rows {
		if err := imports.SendDelayMsg(row, 0); err != nil {
			panic(err)
		}
	}
	fmt.Println(imports.Drain(context.Background()))
	// Output:
	// a is in; b is in; c is in
	// 4 <nil>
}

// undoing handles an order in steps. If a step fails for good, that step and those before it are undone, from the
// last to the first.
func undoing(orders *delayqueue.DelayQueue, do func(ctx context.Context, step string) error) {
	orders.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		next := map[string]string{"charge": "pack", "pack": "ship", "undo ship": "undo pack", "undo pack": "undo charge"}
		step, follower := msg.Payload, next[msg.Payload]
		err := do(ctx, step)
		if err != nil && !strings.HasPrefix(step, "undo ") &&
			(msg.Failures >= msg.MaxRetries || errors.Is(err, delayqueue.ErrSkipRetry)) {
			err, follower = nil, "undo "+step // no retry is left
		}
		if err != nil || follower == "" {
			return err
		}
		return delayqueue.Then(ctx, follower)
	})
}

// What was done is undone when a later step fails for good.
func ExampleThen_undo() {
	redisCli, end := embedded()
	defer end()

	orders := delayqueue.NewQueue("orders", redisCli, nil)
	undoing(orders, func(_ context.Context, step string) error {
		fmt.Println(step)
		if step == "ship" {
			return fmt.Errorf("%w: no such address", delayqueue.ErrSkipRetry)
		}
		return nil
	})
	if _, err := orders.Send(context.Background(), "charge"); err != nil {
		panic(err)
	}
	fmt.Println(orders.Drain(context.Background()))
	// Output:
	// charge
	// pack
	// ship
	// undo ship
	// undo pack
	// undo charge
	// 6 <nil>
}

// A code is of no use after five minutes, whoever was busy.
func ExampleWithDeadline() {
	redisCli, end := embedded()
	defer end()

	var queue *delayqueue.DelayQueue
	queue = delayqueue.NewQueue("codes", redisCli, nil).
		WithHandler(func(context.Context, *delayqueue.Message) error {
			return delayqueue.RetryAfter(10*time.Minute, errors.New("the gateway is busy"))
		}).
		WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, err error) {
			fmt.Println(msg.Payload, "has expired:", errors.Is(err, delayqueue.ErrExpired))
			queue.StopConsume()
		})
	ctx := context.Background()
	_, err := queue.Send(ctx, "code 4711", delayqueue.WithDeadline(time.Now().Add(5*time.Minute)),
		delayqueue.WithTimeout(10*time.Second))
	if err != nil {
		panic(err)
	}
	<-queue.StartConsume()
	// Output: code 4711 has expired: true
}

// Changes of one customer are made in order, also if one of them fails, beside those of all others.
func ExampleWithLane() {
	redisCli, end := embedded()
	defer end()
	ctx := context.Background()

	changes := delayqueue.NewQueue("changes", redisCli, nil).WithNackRedeliveryDelay(10 * time.Millisecond)
	changes.WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		fmt.Println(msg.Lane, msg.Payload)
		if msg.Payload == "open" && msg.Delivery == 1 {
			return errors.New("busy")
		}
		if msg.Payload == "close" {
			changes.StopConsume()
		}
		return nil
	})
	for _, change := range []string{"open", "rename", "close"} {
		_, err := changes.Send(ctx, change, delayqueue.WithLane("customer-42"))
		if err != nil {
			panic(err)
		}
	}
	<-changes.StartConsume()
	// Output:
	// customer-42 open
	// customer-42 open
	// customer-42 rename
	// customer-42 close
}

// A backlog of one tenant has five workers at most.
func ExampleWithLane_tenants() {
	redisCli, end := embedded()
	defer end()
	ctx := context.Background()

	type sheet struct{ Tenant, Body string }
	pages := []sheet{{"7", "first"}, {"7", "second"}, {"8", "only"}}
	renders := delayqueue.NewQueue("renders", redisCli, nil)
	page := "a page"
	_, err := renders.Send(ctx, page, delayqueue.WithLane("tenant-7", 5))
	if err != nil {
		panic(err)
	}
	var batch []delayqueue.Outgoing
	sendAll := func() error {
		renders.WithConcurrent(64)
		for _, page := range pages {
			batch = append(batch, delayqueue.Outgoing{Payload: page.Body, Options: []delayqueue.MsgOption{
				delayqueue.WithLane("tenant-"+page.Tenant, 5)}})
		}
		_, err := renders.SendBatch(ctx, batch)
		return err
	}
	if err := sendAll(); err != nil {
		panic(err)
	}
	n, err := delayqueue.NewMonitor("renders", redisCli).GetReadyCount(ctx)
	fmt.Println(n, "are due, and none waits for its turn:", err)
	// Output: 4 are due, and none waits for its turn: <nil>
}
