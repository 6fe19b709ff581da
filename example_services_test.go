package delayqueue_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"net/http"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

// These are recipes of docs/recipes.md as well: of whole services.

// An order is closed if nobody has paid it in time.
func Example_closeUnpaidOrder() {
	redisCli, end := embedded()
	defer end()

	closeIfUnpaid := func(_ context.Context, order string) error { fmt.Println("closed", order); return nil }
	paidLate := func(string) {}
	ctx := context.Background()
	orders := delayqueue.NewQueue("orders", redisCli, nil)
	orders.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		defer orders.StopConsume() // here
		return closeIfUnpaid(ctx, msg.Payload)
	})
	place := func(order string) error {
		_, err := orders.Send(ctx, order, delayqueue.WithKey("order-"+order, delayqueue.Keep),
			delayqueue.WithDelay(15*time.Minute))
		return err
	}
	paid := func(order string) error {
		result, err := orders.InterceptKey(ctx, "order-"+order)
		if err == nil && !result.Intercepted {
			paidLate(order) // it is closed, or is being closed right now: State says which
		}
		return err
	}
	for _, order := range []string{"41", "42"} {
		if err := place(order); err != nil {
			panic(err)
		}
	}
	if err := paid("41"); err != nil {
		panic(err)
	}
	if err := orders.RescheduleKey(ctx, "order-42", time.Now()); err != nil { // 15 minutes later
		panic(err)
	}
	<-orders.StartConsume()
	// Output: closed 42
}

// A payment is looked at every half minute until its fate is known, for a day.
func ExampleAgain_polling() {
	redisCli, end := embedded()
	defer end()

	const pause = time.Millisecond // here
	looks := 0
	status := func(context.Context, string) (string, error) {
		if looks++; looks < 3 {
			return "open", nil
		}
		return "paid", nil
	}
	payments := delayqueue.NewQueue("payments", redisCli, nil)
	settle := func(_ context.Context, id, status string) error {
		fmt.Println(id, "is", status, "at look", looks)
		payments.StopConsume()
		return nil
	}
	payments.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		status, err := status(ctx, msg.Payload)
		switch {
		case err != nil:
			return err // a failure: retried, and given up on after the retries
		case status == "open":
			return delayqueue.Again(pause) // no failure, and failures count from 0
		}
		return settle(ctx, msg.Payload, status)
	})
	_, err := payments.Send(context.Background(), "payment 42", delayqueue.WithDeadline(time.Now().Add(24*time.Hour)))
	if err != nil {
		panic(err)
	}
	<-payments.StartConsume()
	// Output: payment 42 is paid at look 3
}

// A partner's API is called as fast as it allows, and left alone when it says so.
func ExampleThrottle_partner() {
	redisCli, end := embedded()
	defer end()

	answers := []*http.Response{
		{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"0"}}},
		{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"0"}}},
		{StatusCode: http.StatusOK},
	}
	partner := delayqueue.NewQueue("partner", redisCli, nil)
	post := func(_ context.Context, body string) (*http.Response, error) {
		answer := answers[0]
		if answers = answers[1:]; len(answers) == 0 {
			fmt.Println("accepted", body)
			partner.StopConsume()
		}
		return answer, nil
	}
	retryAfter := func(r *http.Response) time.Duration {
		seconds, _ := strconv.Atoi(r.Header.Get("Retry-After")) // else 0
		return time.Duration(seconds) * time.Second
	}
	partner.WithRateLimit(100, time.Second, 10).WithQueueConcurrency(5)
	partner.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		answer, err := post(ctx, msg.Payload)
		switch {
		case err != nil:
			return err
		case answer.StatusCode == http.StatusTooManyRequests: // nobody goes on, on any machine
			return delayqueue.Throttle(retryAfter(answer), nil)
		case answer.StatusCode >= 500: // a failure of this message alone
			return delayqueue.RetryAfter(retryAfter(answer), errors.New(answer.Status))
		case answer.StatusCode >= 400: // no retry would be any better
			return fmt.Errorf("%w: %s", delayqueue.ErrSkipRetry, answer.Status)
		}
		return nil
	})
	if _, err := partner.Send(context.Background(), "invoice 42"); err != nil {
		panic(err)
	}
	<-partner.StartConsume()
	// Output: accepted invoice 42
}

// Each tenant has a queue, and all share the workers.
func ExamplePool_tenants() {
	redisCli, end := embedded()
	defer end()

	tenants := []string{"small", "large"}
	render := func(context.Context, *delayqueue.Message) error { return nil }
	for range 100 {
		if err := delayqueue.NewPublisher("invoices-large", redisCli).SendDelayMsg("monthly", 0); err != nil {
			panic(err)
		}
	}
	if err := delayqueue.NewPublisher("invoices-small", redisCli).SendDelayMsg("the only one", 0); err != nil {
		panic(err)
	}
	var shares []delayqueue.Share
	for _, tenant := range tenants {
		queue := delayqueue.NewQueue("invoices-"+tenant, redisCli, nil).WithHandler(render).WithQueueConcurrency(8)
		shares = append(shares, delayqueue.Share{Queue: queue})
	}
	pool := delayqueue.NewPool(64, shares...)
	done := pool.StartConsume()
	for small := delayqueue.NewMonitor("invoices-small", redisCli); ; {
		if n, err := small.Counts(context.Background()); err == nil && n.Pending+n.Ready+n.Unack == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("the small one did not wait for the large one")
	pool.StopConsume()
	<-done
	// Output: the small one did not wait for the large one
}

// A process that is told to end takes nothing more, and has some seconds to finish what it has.
func ExampleDelayQueue_Shutdown_deployment() {
	redisCli, end := embedded()
	defer end()

	var stop context.CancelFunc
	queue := delayqueue.NewQueue("orders", redisCli, func(string) bool { stop(); return true }) // as SIGTERM does
	if err := queue.SendDelayMsg("42", 0); err != nil {
		panic(err)
	}
	serve := func() error {
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer cancel()
		stop = cancel
		queue.StartConsume()
		<-ctx.Done()
		cancel() // a second signal ends the process at once
		grace, cancel := context.WithTimeout(context.Background(), 25*time.Second)
		defer cancel()
		return queue.Shutdown(grace)
	}
	fmt.Println(serve())
	// Output: <nil>
}

// Redis, its backups and who looks at it see payloads that only the service can open.
func ExampleDelayQueue_WithMiddleware_encryption() {
	redisCli, end := embedded()
	defer end()

	key := []byte("32 bytes from your secret store!")
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	sealers := map[string]cipher.AEAD{
		"2026-11": sealer} // by the name of the key; old ones too, while messages of them wait
	seal := func(name, payload string) (string, delayqueue.MsgOption) {
		sealed := sealers[name].Seal(nil, nil, []byte(payload), []byte(name))
		return string(sealed), delayqueue.WithHeader("sealed-with", name)
	}
	cards := delayqueue.NewQueue("cards", redisCli, nil)
	cards.WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
		return func(ctx context.Context, msg *delayqueue.Message) error {
			name := msg.Headers["sealed-with"]
			sealer, ok := sealers[name]
			if !ok {
				return fmt.Errorf("no key %q here", name) // retried: perhaps by a process that has it
			}
			plain, err := sealer.Open(nil, nil, []byte(msg.Payload), []byte(name))
			if err != nil {
				return fmt.Errorf("%w: %w", delayqueue.ErrSkipRetry, err)
			}
			msg.Payload = string(plain)
			return next(ctx, msg)
		}
	})
	cards.WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		fmt.Println("charged", msg.Payload)
		cards.StopConsume()
		return nil
	})
	payload, with := seal("2026-11", "card 4711")
	if _, err := cards.Send(context.Background(), payload, with); err != nil {
		panic(err)
	}
	<-cards.StartConsume()
	// Output: charged card 4711
}

// splitFiles handles files by their rows. The message of each file waits for its rows, and its ack counts for the
// folder.
func splitFiles(imports *delayqueue.DelayQueue, rowsOf func(file string) []string,
	handle func(ctx context.Context, payload string) error) {
	imports.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		file, isFile := strings.CutPrefix(msg.Payload, "file ")
		if !isFile {
			return handle(ctx, msg.Payload)
		}
		rows := rowsOf(file)
		err := delayqueue.Then(ctx, file+" is done", delayqueue.WithKey(file), delayqueue.WithCounts("folder"),
			delayqueue.WithCountdown(len(rows)), delayqueue.WithDelay(time.Hour))
		for _, row := range rows {
			err = errors.Join(err, delayqueue.Then(ctx, row, delayqueue.WithCounts(file)))
		}
		return err
	})
}

// sendFolder sends the files of a folder, behind a message that waits for them.
func sendFolder(ctx context.Context, imports *delayqueue.DelayQueue, files ...string) error {
	_, err := imports.Send(ctx, "the folder is done", delayqueue.WithKey("folder"),
		delayqueue.WithCountdown(len(files)), delayqueue.WithDelay(2*time.Hour))
	for _, file := range files {
		if err == nil {
			_, err = imports.Send(ctx, "file "+file)
		}
	}
	return err
}

// What counts may itself wait for others.
func ExampleWithCounts_twoLevels() {
	redisCli, end := embedded()
	defer end()

	imports := delayqueue.NewQueue("imports", redisCli, nil)
	rows := map[string][]string{"A": {"a1", "a2"}, "B": {"b1"}}
	splitFiles(imports, func(file string) []string { return rows[file] },
		func(_ context.Context, payload string) error { fmt.Println(payload); return nil })
	if err := sendFolder(context.Background(), imports, "A", "B"); err != nil {
		panic(err)
	}
	fmt.Println(imports.Drain(context.Background()))
	// Unordered output:
	// a1
	// a2
	// b1
	// A is done
	// B is done
	// the folder is done
	// 8 <nil>
}

// reportInTime handles rows and their report, which waits an hour for them, and then half an hour more.
func reportInTime(imports *delayqueue.DelayQueue, importRow, mail func(ctx context.Context, text string) error) {
	imports.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		if msg.Payload != "report" {
			return importRow(ctx, msg.Payload)
		}
		switch {
		case msg.CountdownLeft == 0:
			return mail(ctx, "all rows are in")
		case msg.Delivery < 4:
			return delayqueue.Snooze(10 * time.Minute)
		}
		return mail(ctx, fmt.Sprint(msg.CountdownLeft, " rows are missing"))
	})
}

// After an hour, the report goes out without the rows that are missing.
func ExampleWithCountdown_timeLimit() {
	redisCli, end := embedded()
	defer end()

	ctx := context.Background()
	imports := delayqueue.NewQueue("imports", redisCli, nil)
	reportInTime(imports, func(context.Context, string) error { return delayqueue.ErrSkipRetry },
		func(_ context.Context, text string) error { fmt.Println(text); return nil })
	if err := sendRows(ctx, imports, "import-7", []string{"a", "b"}); err != nil {
		panic(err)
	}
	for range 4 { // each time, its time has come
		if err := imports.RescheduleKey(ctx, "import-7", time.Now()); err != nil {
			panic(err)
		}
		if _, err := imports.Drain(ctx); err != nil {
			panic(err)
		}
	}
	// Output: 2 rows are missing
}

// countFailures handles rows and a report, whose parts are the results. A row that fails for good has a result, too.
func countFailures(imports *delayqueue.DelayQueue, importRow func(ctx context.Context, row string) (string, error),
	mail func(ctx context.Context, text string) error) {
	imports.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		if msg.Parts != nil {
			return mail(ctx, strings.Join(msg.Parts, "; "))
		}
		result, err := importRow(ctx, msg.Payload)
		if err != nil && (msg.Failures >= msg.MaxRetries || errors.Is(err, delayqueue.ErrSkipRetry)) {
			result, err = msg.Payload+" failed: "+err.Error(), nil // no retry is left
		}
		if err != nil {
			return err
		}
		return delayqueue.Then(ctx, result, delayqueue.WithKey("import-7", delayqueue.Append))
	})
}

// sendGroup sends a group, which waits for the rows of an import, and the rows.
func sendGroup(ctx context.Context, imports *delayqueue.DelayQueue, rows ...string) error {
	_, err := imports.Send(ctx, "import 7", delayqueue.WithKey("import-7", delayqueue.Append),
		delayqueue.WithCountdown(len(rows)), delayqueue.WithDelay(time.Hour))
	for _, row := range rows {
		if err == nil {
			_, err = imports.Send(ctx, row, delayqueue.WithCounts("import-7"))
		}
	}
	return err
}

// A row that fails for good holds up nothing.
func ExampleWithCountdown_failure() {
	redisCli, end := embedded()
	defer end()

	imports := delayqueue.NewQueue("imports", redisCli, nil)
	countFailures(imports, func(_ context.Context, row string) (string, error) {
		if row == "b" {
			return "", fmt.Errorf("%w: no such account", delayqueue.ErrSkipRetry)
		}
		return row + " is in", nil
	}, func(_ context.Context, text string) error { fmt.Println(text); return nil })
	if err := sendGroup(context.Background(), imports, "a", "b"); err != nil {
		panic(err)
	}
	fmt.Println(imports.Drain(context.Background()))
	// Output:
	// import 7; a is in; b failed: skip retry: no such account
	// 3 <nil>
}

// cancelImport takes out the report of an import, and the rows that wait.
func cancelImport(ctx context.Context, monitor *ops.Queue, id string) error {
	if _, err := monitor.InterceptKey(ctx, id); err != nil {
		return err
	}
	_, err := monitor.BulkDelete(ctx, ops.Bulk{
		States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry},
		Filter: ops.Filter{Headers: map[string]string{"import": id}},
	})
	return err
}

// unlessCanceled makes rows of an import that was canceled do nothing.
func unlessCanceled(imports *delayqueue.DelayQueue, monitor *ops.Queue,
	handle func(ctx context.Context, payload string) error) {
	imports.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		if msg.Payload == "report" {
			return handle(ctx, msg.Payload)
		}
		_, err := monitor.GetKey(ctx, msg.Headers["import"])
		if errors.Is(err, delayqueue.ErrNotFound) {
			return nil // the report was taken out, or is done
		} else if err != nil {
			return err
		}
		return handle(ctx, msg.Payload)
	})
}

// A whole import is canceled: its report, and all rows that no handler has.
func Example_cancelImport() {
	redisCli, end := embedded()
	defer end()

	ctx := context.Background()
	monitor := ops.Of(delayqueue.NewMonitor("imports", redisCli))
	imports := delayqueue.NewQueue("imports", redisCli, nil)
	unlessCanceled(imports, monitor, func(ctx context.Context, row string) error {
		fmt.Println(row)
		return cancelImport(ctx, monitor, "import-7") // here
	})
	if err := sendRows(ctx, imports, "import-7", []string{"a", "b", "c"}); err != nil {
		panic(err)
	}
	if _, err := imports.Drain(ctx); err != nil {
		panic(err)
	}
	counts, err := monitor.Counts(ctx)
	fmt.Println(counts.Pending+counts.Ready, err)
	// Output:
	// a
	// 0 <nil>
}
