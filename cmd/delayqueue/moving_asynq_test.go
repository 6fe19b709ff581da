package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/go-delayqueue/delayqueue/typed"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// The code on the pages about moving over and running is compiled; what another module would have to be there for
// says so.
func TestPagesAreCompiled(t *testing.T) {
	indent := regexp.MustCompile(`(?m)^\t+`)
	read := func(name string) string {
		text, err := os.ReadFile(name)
		ok(t, err)
		return string(text)
	}
	for page, source := range map[string]string{
		"../../docs/from-asynq.md":   "moving_asynq_test.go",
		"../../docs/from-hdt3213.md": "../../tests/docs/moving_test.go",
		"../../docs/running.md":      "../../tests/docs/running_test.go",
	} {
		compiled := indent.ReplaceAllString(read(source), "")
		blocks := strings.Split(read(page), "\n```go\n")
		if len(blocks) < 3 {
			t.Errorf("%s: %d blocks of code", page, len(blocks)-1)
		}
		for _, block := range blocks[1:] {
			code, _, _ := strings.Cut(block, "```")
			if !strings.HasPrefix(code, "// before\n") && !strings.Contains(compiled, indent.ReplaceAllString(code, "")) {
				t.Errorf("%s: not in %s:\n%s", page, source, code)
			}
		}
	}
}

// The code of docs/from-asynq.md: before is asynq's, after is ours.

type Mail struct{ User int }

var errUnknownUser = errors.New("no such user")

// A post sends mails.
type post func(ctx context.Context, user int) error

// before

func enqueueMail(ctx context.Context, client *asynq.Client, user int) error {
	payload, err := json.Marshal(Mail{User: user})
	if err != nil {
		return err
	}
	task := asynq.NewTask("email:welcome", payload, asynq.Queue("mails"))
	_, err = client.EnqueueContext(ctx, task, asynq.TaskID(fmt.Sprint("welcome-", user)),
		asynq.ProcessIn(15*time.Minute), asynq.MaxRetry(5), asynq.Timeout(time.Minute), asynq.Retention(24*time.Hour))
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil // it is on its way
	}
	return err
}

func asynqServer(redisCli redis.UniversalClient, send post) (*asynq.Server, *asynq.ServeMux) {
	mux := asynq.NewServeMux()
	mux.HandleFunc("email:welcome", func(ctx context.Context, t *asynq.Task) error {
		var m Mail
		if err := json.Unmarshal(t.Payload(), &m); err != nil {
			return fmt.Errorf("%w: %w", asynq.SkipRetry, err)
		}
		err := send(ctx, m.User)
		if errors.Is(err, errUnknownUser) {
			return fmt.Errorf("%w: %w", asynq.SkipRetry, err)
		}
		if err == nil {
			_, err = fmt.Fprint(t.ResultWriter(), "sent")
		}
		return err
	})
	server := asynq.NewServerFromRedisClient(redisCli, asynq.Config{Concurrency: 10, Queues: map[string]int{"mails": 1}})
	return server, mux // server.Run(mux)
}

// after

var Welcome = typed.Kind[Mail]("email:welcome")

func sendMail(ctx context.Context, mails *delayqueue.Publisher, user int) error {
	_, err := Welcome.Send(ctx, mails, Mail{User: user}, delayqueue.WithKey(fmt.Sprint("welcome-", user)),
		delayqueue.WithDelay(15*time.Minute), delayqueue.WithRetryCount(5), delayqueue.WithTimeout(time.Minute),
		delayqueue.WithRetention(24*time.Hour))
	if errors.Is(err, delayqueue.ErrDuplicateKey) {
		return nil // it is on its way
	}
	return err
}

func mailQueue(redisCli redis.UniversalClient, send post) *delayqueue.DelayQueue {
	mux := typed.NewMux()
	typed.Handle(mux, Welcome, func(ctx context.Context, m Mail, msg *delayqueue.Message) error {
		err := send(ctx, m.User)
		if errors.Is(err, errUnknownUser) {
			return fmt.Errorf("%w: %w", delayqueue.ErrSkipRetry, err)
		}
		if err == nil {
			err = delayqueue.SetResult(ctx, "sent")
		}
		return err
	})
	queue := delayqueue.NewQueue("mails", redisCli,
		nil).WithHandler(mux.Handler).WithConcurrent(10).WithRetryDelayFunc(asynqDelay)
	return queue // ctx, _ := signal.NotifyContext(…); queue.Run(ctx)
}

// asynqDelay is how long asynq waits after a failure, unless its RetryDelayFunc says otherwise.
func asynqDelay(failures int, _ error, _ *delayqueue.Message) time.Duration {
	n := float64(failures - 1) // asynq counts from 0
	return time.Duration(math.Pow(n, 4)+15+float64(rand.IntN(30))*(n+1)) * time.Second
}

// after: periodic, unique, groups

func otherHabits(ctx context.Context, queue *delayqueue.DelayQueue) error {
	// asynq.Unique(time.Hour); WithKeyHold(time.Hour) would refuse a second one for an hour after the ack, too
	_, err := queue.Send(ctx, "rebuild", delayqueue.WithPayloadKey())
	// asynq.Group("user-42"), with GroupGracePeriod 10 s, GroupMaxDelay 1 min and GroupMaxSize 50
	_, err2 := queue.Send(ctx, "liked", delayqueue.WithKey("user-42", delayqueue.Append),
		delayqueue.WithDelay(10*time.Second), delayqueue.WithMaxWait(time.Minute), delayqueue.WithMaxParts(50))
	return errors.Join(err, err2)
}

// What follows is compiled, and no more.
var _ = []any{asynqHabits, poolOfQueues, unlessLimited, reports}

// before: queues by weight, a partner's limit, cron

type RateLimitError struct{ RetryIn time.Duration }

func (e *RateLimitError) Error() string { return "rate limited" }

func asynqHabits(redisCli redis.UniversalClient) (*asynq.Server, *asynq.Scheduler, error) {
	server := asynq.NewServerFromRedisClient(redisCli, asynq.Config{
		Concurrency: 10,
		Queues:      map[string]int{"critical": 6, "default": 3, "low": 1},
		IsFailure:   func(err error) bool { return !errors.As(err, new(*RateLimitError)) },
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			var limited *RateLimitError
			if errors.As(err, &limited) {
				return limited.RetryIn
			}
			return asynq.DefaultRetryDelayFunc(n, err, task)
		},
	})
	scheduler := asynq.NewSchedulerFromRedisClient(redisCli, nil) // in one process only
	_, err := scheduler.Register("CRON_TZ=Europe/Berlin 0 9 * * 1-5", asynq.NewTask("report:daily", []byte(`{}`)),
		asynq.Queue("low"))
	return server, scheduler, err
}

// after: queues by weight, a partner's limit, cron

func poolOfQueues(critical, normal, low *delayqueue.DelayQueue) *delayqueue.Pool {
	low.WithRateLimit(100, time.Second, 10) // over all processes: then 429s are rare
	return delayqueue.NewPool(10,
		delayqueue.Share{Queue: critical, Weight: 6},
		delayqueue.Share{Queue: normal, Weight: 3},
		delayqueue.Share{Queue: low, Weight: 1}) // .Strict() is StrictPriority
}

func unlessLimited(next delayqueue.Handler) delayqueue.Handler { // WithMiddleware(unlessLimited)
	return func(ctx context.Context, msg *delayqueue.Message) error {
		err := next(ctx, msg)
		var limited *RateLimitError
		if errors.As(err, &limited) {
			return delayqueue.Throttle(limited.RetryIn, err) // the whole queue waits, no retry used; Snooze: this message alone
		}
		return err
	}
}

func reports(ctx context.Context, low *delayqueue.DelayQueue) error {
	s := schedule.New(low)
	if err := s.Set(ctx, schedule.Entry{
		Name: "daily report", Cron: "0 9 * * 1-5", Zone: "Europe/Berlin",
		Payload: "{}", Options: []delayqueue.MsgOption{delayqueue.WithHeader(typed.Header, "report:daily")},
	}); err != nil {
		return err
	}
	return s.Run(ctx) // on every replica
}

// after: Inspector

func inspect(ctx context.Context, redisCli redis.UniversalClient) error {
	mails := ops.Of(delayqueue.NewMonitor("mails", redisCli))
	counts, err := mails.Counts(ctx) // GetQueueInfo
	if err != nil {
		return err
	}
	fmt.Println(counts.Pending, counts.Ready, counts.Unack, counts.Retry, counts.Garbage, counts.Done)
	msg, err := mails.GetKey(ctx, "welcome-42") // GetTaskInfo
	if err != nil {
		return err
	}
	if err := mails.RunNow(ctx, msg.ID); err != nil { // RunTask
		return err
	}
	if _, err := mails.BulkRequeue(ctx, ops.Bulk{}); err != nil { // RunAllArchivedTasks
		return err
	}
	_, err = mails.CancelKey(ctx, "welcome-42") // CancelProcessing, and no retry; InterceptKey: only if it is not running
	return err
}

// TestMovedFromAsynq: what the code of the page before sent, the code of the page after handles.
func TestMovedFromAsynq(t *testing.T) {
	w := onServer(t)
	w.prefix = "dq" // the page's
	ctx := t.Context()
	client := asynq.NewClientFromRedisClient(w.cli)
	for _, user := range []int{41, 42, 41} {
		ok(t, enqueueMail(ctx, client, user))
	}
	server, mux := asynqServer(w.cli, func(context.Context, int) error { return nil })
	ok(t, server.Start(mux))
	server.Shutdown()
	w.contains(w.must("import", "mails", "--from", "asynq", "--yes"), "moved 2 messages")
	p := delayqueue.NewPublisher("mails", w.cli)
	for _, user := range []int{42, 43} { // one of them is on its way
		ok(t, sendMail(ctx, p, user))
	}
	got := make(chan int, 10)
	queue := mailQueue(w.cli, func(_ context.Context, user int) error {
		got <- user
		return nil
	}).WithLogger(slog.New(slog.DiscardHandler))
	mails := ops.Of(delayqueue.NewMonitor("mails", w.cli))
	if r, err := mails.BulkRunNow(ctx, ops.Bulk{States: []delayqueue.State{delayqueue.StatePending}}); err != nil ||
		r.Done != 3 {
		t.Fatal(r, err)
	}
	ok(t, otherHabits(ctx, queue))
	ok(t, inspect(ctx, w.cli))
	queue.StartConsume()
	seen := map[int]int{}
	for range 2 { // inspect has taken out 42
		seen[<-got]++
	}
	if seen[41] != 1 || seen[43] != 1 {
		t.Error(seen)
	}
	w.until("both are kept with their results", func() bool { return w.counts("mails").Done == 2 })
	ok(t, queue.Shutdown(ctx))
	if d := asynqDelay(1, nil, nil); d < 15*time.Second || d > 45*time.Second {
		t.Error(d)
	}
}
