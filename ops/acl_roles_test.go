package ops

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// TestLeastPrivilege: what docs/acl.md gives each role is enough: nothing of what it does is refused.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		addr := redistest.Start(t).Addr()
		leastPrivilege(t, []string{addr}, func(user string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: password(user)})
		})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		addrs := redistest.StartCluster(t, 2, 0).Addrs()
		leastPrivilege(t, addrs, func(user string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: user, Password: password(user)})
		})
	})
}

// TestRightsOfShards: a user of a queue with shards gets each key pattern of its line once more.
func TestRightsOfShards(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	node := queuetest.RedisClient(t, server.Addr())
	pattern := regexp.MustCompile(`~\{dq:orders\}(:\S+)`)
	for _, lines := range queuetest.DocumentedUsers(t) {
		for _, line := range lines {
			if !strings.Contains(line, "+cluster|") {
				queuetest.SetUser(t, node, pattern.ReplaceAllString(line, "$0 ~{dq:orders/*}$1"))
			}
		}
	}
	as := func(user string) redis.UniversalClient {
		cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), Username: user, Password: password(user)})
		return cli
	}
	f := face.On(t, as(""))
	p := delayqueue.NewPublisher("orders", as("publisher"), delayqueue.WithShards(6))
	got := make(chan string, 12)
	for range 12 {
		f.Must(queuetest.Failure(p.Send(queuetest.CtxB, "x")))
	}
	q := delayqueue.NewQueue("orders", as("consumer"), func(payload string) bool {
		got <- payload
		return true
	}, delayqueue.WithShards(6))
	f.Stops(q)
	q.StartConsume()
	for range 12 {
		queuetest.Receive(t, "a message", got)
	}
	reader := Of(delayqueue.NewMonitor("orders", as("reader")))
	_, err := reader.Counts(queuetest.CtxB)
	f.Must(err)
	f.Must(queuetest.Failure(reader.Consumers(queuetest.CtxB)))
	f.Must(Of(delayqueue.NewMonitor("orders", as("operator"))).Pause(queuetest.CtxB))
	if all := queuetest.Refusals(t, node); len(all) > 0 {
		t.Errorf("refused: %q", all)
	}
}

func password(user string) string {
	if user == "" {
		return ""
	}
	return "secret"
}

func leastPrivilege(t *testing.T, addrs []string, client func(user string) redis.UniversalClient) {
	var nodes []*redis.Client
	for _, addr := range addrs {
		node := queuetest.RedisClient(t, addr)
		nodes = append(nodes, node)
		queuetest.SetUsers(t, node, len(addrs) > 1)
	}
	f := face.On(t, client(""))
	f.Name = "orders"
	users := map[string]redis.UniversalClient{}
	for name := range queuetest.DocumentedUsers(t) {
		cli := client(name)
		t.Cleanup(func() { _ = cli.Close() })
		users[name] = cli
	}
	publishes(f, users["publisher"])
	consumes(f, users["consumer"])
	reads(f, users["reader"])
	operates(f, users["operator"])
	for _, node := range nodes {
		if all := queuetest.Refusals(t, node); len(all) > 0 {
			t.Errorf("refused: %q", all)
		}
	}
	refusesReader(f, users["reader"])
}

// publishes does what a publisher does.
func publishes(f *face.Fixture, cli redis.UniversalClient) {
	p := delayqueue.NewPublisher(f.Name, cli).WithReplicaAck(1, time.Millisecond)
	defer p.EnableReport().Stop()
	if _, err := p.Send(queuetest.CtxB, "a", delayqueue.WithDelay(time.Hour)); !strings.Contains(fmt.Sprint(err),
		"0 of 1") {
		f.T.Errorf("publisher: with WAIT: %v", err)
	}
	p.WithReplicaAck(0, 0)
	var infos []*delayqueue.MessageInfo
	for i := range 4 {
		info, err := p.Send(queuetest.CtxB, "a", delayqueue.WithDelay(time.Hour), delayqueue.WithKey(fmt.Sprint("k", i)))
		if err != nil {
			f.T.Fatalf("publisher: send: %v", err)
		}
		infos = append(infos, info)
	}
	_, twice := p.Send(queuetest.CtxB, "a", delayqueue.WithKey("k0"))
	_, batch := p.SendBatch(queuetest.CtxB,
		[]delayqueue.Outgoing{{Payload: "a"},
			{Payload: "b", Options: []delayqueue.MsgOption{delayqueue.WithSchedule(time.Now().Add(time.Hour))}}})
	rescheduled := p.RescheduleKey(queuetest.CtxB, "k1", time.Now().Add(time.Hour))
	for what, err := range map[string]error{
		"reschedule": rescheduled,
		"batch":      batch,
		"intercept":  queuetest.Failure(p.TryIntercept(infos[0])),
		"by key":     queuetest.Failure(p.InterceptKey(queuetest.CtxB, "k1")),
		"cancel":     queuetest.Failure(p.Cancel(queuetest.CtxB, infos[2].ID)),
		"cancelled":  queuetest.Failure(p.CancelKey(queuetest.CtxB, "k3")),
	} {
		if err != nil {
			f.T.Errorf("publisher: %s: %v", what, err)
		}
	}
	if _, err := p.Await(queuetest.CtxB, infos[2].ID); !errors.Is(err, delayqueue.ErrNoResult) {
		f.T.Errorf("publisher: await what is gone: %v", err)
	}
	if err := p.Reschedule(queuetest.CtxB, infos[2].ID, time.Now().Add(time.Hour)); !errors.Is(err,
		delayqueue.ErrNotFound) {
		f.T.Errorf("publisher: reschedule of what is gone: %v", err)
	}
	if !errors.Is(twice, delayqueue.ErrDuplicateKey) {
		f.T.Errorf("publisher: a key that is taken: %v", twice)
	}
}

// consumes does what a consumer does, until all but what is an hour off is handled.
func consumes(f *face.Fixture, cli redis.UniversalClient) {
	sender := delayqueue.NewPublisher(f.Name, f.Cli)
	for _, payload := range []string{"fine", "fails once", "dies", "waits"} {
		f.Must(queuetest.Failure(sender.Send(queuetest.CtxB, payload, delayqueue.WithKey("consumed "+payload),
			delayqueue.WithRetention(time.Hour))))
	}
	q := f.QueueOn(cli, nil).WithLease(6*time.Second).WithConcurrent(4).WithNackRedeliveryDelay(time.Millisecond).
		WithGarbageRetention(time.Hour, 1)
	defer q.EnableReport().Stop()
	handled := make(chan string, 100)
	q.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		handled <- msg.Payload
		switch {
		case msg.Payload == "fails once" && msg.Delivery == 1:
			return queuetest.ErrBoom
		case msg.Payload == "dies":
			return delayqueue.ErrSkipRetry
		case msg.Payload == "waits":
			select { // until its lease has been renewed twice
			case <-time.After(4500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return delayqueue.SetResult(ctx, "done")
	})
	done := q.StartConsume()
	for range 6 { // one of the batch, and these, one of them twice
		queuetest.Receive(f.T, "a message is handled", handled)
	}
	q.StopConsume()
	queuetest.Receive(f.T, "the consumer stops", done)
	if n := f.Log.Count("cannot wait for wake-ups") + f.Log.Count("NOPERM") + f.Log.Count("ACL"); n != 0 {
		f.T.Errorf("consumer: %d complaints in the log:\n%s", n, f.Log)
	}
}

// reads does what a reader does.
func reads(f *face.Fixture, cli redis.UniversalClient) {
	m := Of(delayqueue.NewMonitor(f.Name, cli))
	sub, err := m.Monitor().ListenEvent(queuetest.CtxB, func(delayqueue.Event) {})
	if err == nil {
		sub.Stop()
	}
	found := 0
	for name, err := range Queues(queuetest.CtxB, cli) {
		if err != nil || name != f.Name {
			f.T.Errorf("reader: queues: %q, %v", name, err)
		}
		found++
	}
	garbage, buried := m.List(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, "")
	if buried != nil || len(garbage.Messages) == 0 {
		f.T.Fatalf("reader: garbage: %+v, %v", garbage, buried)
	}
	checks := map[string]error{
		"listen":    err,
		"counts":    queuetest.Failure(m.Counts(queuetest.CtxB)),
		"get":       queuetest.Failure(m.Get(queuetest.CtxB, garbage.Messages[0].ID)),
		"await":     queuetest.Failure(m.Monitor().Await(queuetest.CtxB, garbage.Messages[0].ID)),
		"consumers": queuetest.Failure(m.Consumers(queuetest.CtxB)),
		"history":   queuetest.Failure(m.History(queuetest.CtxB, Hourly, 1)),
		"find":      queuetest.Failure(m.Find(queuetest.CtxB, "a", Find{}, "")),
		"groups":    queuetest.Failure(m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 0, "")),
		"forecast":  queuetest.Failure(m.Forecast(queuetest.CtxB, time.Time{}, time.Minute, 60)),
	}
	for _, state := range []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateUnack,
		delayqueue.StateRetry, delayqueue.StateDone} {
		checks["list "+state.String()] = queuetest.Failure(m.List(queuetest.CtxB, state, Filter{Contains: "a"}, ""))
	}
	for what, err := range checks {
		if err != nil {
			f.T.Errorf("reader: %s: %v", what, err)
		}
	}
	if found != 1 {
		f.T.Errorf("reader: %d queues, want 1", found)
	}
}

// operates does what an operator does; at last it deletes the queue.
func operates(f *face.Fixture, cli redis.UniversalClient) {
	reads(f, cli)
	m := Of(delayqueue.NewMonitor(f.Name, cli))
	garbage, err := m.List(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, "")
	if err != nil || len(garbage.Messages) == 0 {
		f.T.Fatalf("operator: garbage: %+v, %v", garbage, err)
	}
	dead := garbage.Messages[0].ID
	p := delayqueue.NewPublisher(f.Name, cli)
	sent, err := p.Send(queuetest.CtxB, "by hand", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("by hand"))
	if err != nil {
		f.T.Fatalf("operator: send: %v", err)
	}
	ends := time.Now().Add(time.Hour).UnixMicro()
	for _, err := range []error{f.Cli.HSet(queuetest.CtxB, f.Key("key"), "held", "acked:x").Err(),
		f.Cli.HSet(queuetest.CtxB, f.Key("state"), "holds", ends).Err(),
		f.Cli.ZAdd(queuetest.CtxB, f.Key("holds"), redis.Z{Score: float64(ends), Member: "held"}).Err()} {
		f.Must(err)
	}
	for _, step := range []struct {
		what string
		err  error
	}{
		{"release a key", m.ReleaseKey(queuetest.CtxB, "held")},
		{"requeue", m.Requeue(queuetest.CtxB, dead)},
		{"reschedule", m.Reschedule(queuetest.CtxB, dead, time.Now().Add(time.Hour))},
		{"reschedule by", m.RescheduleBy(queuetest.CtxB, sent.ID, time.Minute)},
		{"run now", m.RunNow(queuetest.CtxB, sent.ID)},
		{"intercept", queuetest.Failure(p.InterceptKey(queuetest.CtxB, "by hand"))},
		{"limits", queuetest.Failure(m.SetLimits(queuetest.CtxB, Limits{Concurrency: 5}))},
		{"unthrottle", queuetest.Failure(m.Unthrottle(queuetest.CtxB))},
		{"pause", m.PauseUntil(queuetest.CtxB, time.Now().Add(time.Hour))},
		{"resume", m.Resume(queuetest.CtxB)},
		{"bulk", queuetest.Failure(m.BulkRescheduleBy(queuetest.CtxB, Bulk{}, time.Minute))},
		{"delete", m.Delete(queuetest.CtxB, dead)},
		{"bulk delete",
			queuetest.Failure(m.BulkDelete(queuetest.CtxB,
				Bulk{States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry,
					delayqueue.StateGarbage, delayqueue.StateDone}}))},
		{"delete queue", m.DeleteQueue(queuetest.CtxB, true)},
	} {
		if step.err != nil {
			f.T.Errorf("operator: %s: %v", step.what, step.err)
		}
	}
}

// refusesReader: whose line is for reading changes nothing, and is told which command it lacks.
func refusesReader(f *face.Fixture, cli redis.UniversalClient) {
	m := Of(delayqueue.NewMonitor(f.Name, cli))
	f.Must(queuetest.Failure(delayqueue.NewPublisher(f.Name, f.Cli).Send(queuetest.CtxB, "stays",
		delayqueue.WithDelay(time.Hour))))
	content := func() *check.State {
		state := f.Check()
		state.Now, state.TTLs = 0, nil
		return state
	}
	before := content()
	for what, err := range map[string]error{
		"send":   queuetest.Failure(delayqueue.NewPublisher(f.Name, cli).Send(queuetest.CtxB, "a")),
		"pause":  m.Pause(queuetest.CtxB),
		"delete": queuetest.Failure(m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StatePending}})),
	} {
		if !queuetest.RefusedByACL(err) {
			f.T.Errorf("a reader's %s: %v", what, err)
		}
	}
	if after := content(); !reflect.DeepEqual(after, before) {
		f.T.Errorf("a reader changed the queue:\n%s\nnow:\n%s", before.Dump(), after.Dump())
	}
}
