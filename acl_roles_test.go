package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
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

func password(user string) string {
	if user == "" {
		return ""
	}
	return "secret"
}

func leastPrivilege(t *testing.T, addrs []string, client func(user string) redis.UniversalClient) {
	single := len(addrs) == 1
	var nodes []*redis.Client
	for _, addr := range addrs {
		node := redisClient(t, addr)
		nodes = append(nodes, node)
		for _, lines := range documentedUsers(t) {
			for _, line := range lines {
				if !single || !strings.Contains(line, "+cluster|") {
					setUser(t, node, line)
				}
			}
		}
	}
	f := fixtureOn(t, client(""))
	f.name = "orders"
	users := map[string]redis.UniversalClient{}
	for _, r := range roles {
		cli := client(r.name)
		t.Cleanup(func() { _ = cli.Close() })
		users[r.name] = cli
	}
	f.publishes(users["publisher"])
	f.consumes(users["consumer"])
	f.reads(users["reader"])
	f.operates(users["operator"])
	for _, node := range nodes {
		for _, refusal := range refusals(t, node) {
			t.Errorf("refused: %s", refusal)
		}
	}
	f.refusesReader(users["reader"])
}

// refusals is what a server's ACL LOG holds: user, what it did not get, and where. That go-redis tells a server
// about itself (CLIENT) with each connection is not needed, as docs/acl.md says.
func refusals(t *testing.T, admin *redis.Client) (all []string) {
	t.Helper()
	entries, err := admin.ACLLog(ctxB, 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Object == "client" || strings.HasPrefix(e.Object, "client|") {
			continue
		}
		all = append(all, fmt.Sprintf("%s: %s %s, %s", e.Username, e.Reason, e.Object, e.Context))
	}
	return all
}

// publishes does what a publisher does.
func (f *fixture) publishes(cli redis.UniversalClient) {
	p := NewPublisher(f.name, cli).WithReplicaAck(1, time.Millisecond)
	defer p.EnableReport().Stop()
	if _, err := p.Send(ctxB, "a", WithDelay(time.Hour)); !strings.Contains(fmt.Sprint(err), "0 of 1") {
		f.t.Errorf("publisher: with WAIT: %v", err)
	}
	p.WithReplicaAck(0, 0)
	var infos []*MessageInfo
	for i := range 4 {
		info, err := p.Send(ctxB, "a", WithDelay(time.Hour), WithKey(fmt.Sprint("k", i)))
		if err != nil {
			f.t.Fatalf("publisher: send: %v", err)
		}
		infos = append(infos, info)
	}
	_, twice := p.Send(ctxB, "a", WithKey("k0"))
	_, batch := p.SendBatch(ctxB, []Outgoing{{Payload: "a"}, {Payload: "b", Options: []MsgOption{WithSchedule(time.Now().Add(time.Hour))}}})
	rescheduled := p.RescheduleKey(ctxB, "k1", time.Now().Add(time.Hour))
	for what, err := range map[string]error{
		"reschedule": rescheduled,
		"batch":      batch,
		"intercept":  failure(p.TryIntercept(infos[0])),
		"by key":     failure(p.InterceptKey(ctxB, "k1")),
		"cancel":     failure(p.Cancel(ctxB, infos[2].ID)),
		"cancelled":  failure(p.CancelKey(ctxB, "k3")),
	} {
		if err != nil {
			f.t.Errorf("publisher: %s: %v", what, err)
		}
	}
	if _, err := p.Await(ctxB, infos[2].ID); !errors.Is(err, ErrNoResult) {
		f.t.Errorf("publisher: await what is gone: %v", err)
	}
	if err := p.Reschedule(ctxB, infos[2].ID, time.Now().Add(time.Hour)); !errors.Is(err, ErrNotFound) {
		f.t.Errorf("publisher: reschedule of what is gone: %v", err)
	}
	if !errors.Is(twice, ErrDuplicateKey) {
		f.t.Errorf("publisher: a key that is taken: %v", twice)
	}
}

// consumes does what a consumer does, until all but what is an hour off is handled.
func (f *fixture) consumes(cli redis.UniversalClient) {
	sender := NewPublisher(f.name, f.cli)
	for _, payload := range []string{"fine", "fails once", "dies", "waits"} {
		if _, err := sender.Send(ctxB, payload, WithKey("consumed "+payload), WithRetention(time.Hour)); err != nil {
			f.t.Fatal(err)
		}
	}
	q := f.queueOn(cli, nil).WithLease(6*time.Second).WithConcurrent(4).WithNackRedeliveryDelay(time.Millisecond).
		WithGarbageRetention(time.Hour, 1)
	defer q.EnableReport().Stop()
	handled := make(chan string, 100)
	q.WithHandler(func(ctx context.Context, msg *Message) error {
		handled <- msg.Payload
		switch {
		case msg.Payload == "fails once" && msg.Delivery == 1:
			return errBoom
		case msg.Payload == "dies":
			return ErrSkipRetry
		case msg.Payload == "waits":
			select { // until its lease has been renewed twice
			case <-time.After(4500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return SetResult(ctx, "done")
	})
	done := q.StartConsume()
	for range 6 { // one of the batch, and these, one of them twice
		receive(f.t, "a message is handled", handled)
	}
	q.StopConsume()
	receive(f.t, "the consumer stops", done)
	if n := f.log.count("cannot wait for wake-ups") + f.log.count("NOPERM") + f.log.count("ACL"); n != 0 {
		f.t.Errorf("consumer: %d complaints in the log:\n%s", n, f.log)
	}
}

// failure is the error of a call, whatever else it returns.
func failure[T any](_ T, err error) error { return err }

// reads does what a reader does.
func (f *fixture) reads(cli redis.UniversalClient) {
	m := NewMonitor(f.name, cli)
	sub, err := m.ListenEvent(ctxB, func(Event) {})
	if err == nil {
		sub.Stop()
	}
	found := 0
	for name, err := range Queues(ctxB, cli) {
		if err != nil || name != f.name {
			f.t.Errorf("reader: queues: %q, %v", name, err)
		}
		found++
	}
	garbage, buried := m.List(ctxB, StateGarbage, Filter{}, "")
	if buried != nil || len(garbage.Messages) == 0 {
		f.t.Fatalf("reader: garbage: %+v, %v", garbage, buried)
	}
	_, _, inFlight := m.InFlight(ctxB, 1)
	checks := map[string]error{
		"listen":    err,
		"counts":    failure(m.Counts(ctxB)),
		"get":       failure(m.Get(ctxB, garbage.Messages[0].ID)),
		"await":     failure(m.Await(ctxB, garbage.Messages[0].ID)),
		"consumers": failure(m.Consumers(ctxB)),
		"history":   failure(m.History(ctxB, Hourly, 1)),
		"in flight": inFlight,
		"find":      failure(m.Find(ctxB, "a", Find{}, "")),
		"groups":    failure(m.ErrorGroups(ctxB, StateGarbage, Filter{}, 0, "")),
		"forecast":  failure(m.Forecast(ctxB, time.Time{}, time.Minute, 60)),
	}
	for _, state := range []State{StatePending, StateReady, StateUnack, StateRetry, StateDone} {
		checks["list "+state.String()] = failure(m.List(ctxB, state, Filter{Contains: "a"}, ""))
	}
	for what, err := range checks {
		if err != nil {
			f.t.Errorf("reader: %s: %v", what, err)
		}
	}
	if found != 1 {
		f.t.Errorf("reader: %d queues, want 1", found)
	}
}

// operates does what an operator does; at last it deletes the queue.
func (f *fixture) operates(cli redis.UniversalClient) {
	f.reads(cli)
	m := NewMonitor(f.name, cli)
	garbage, err := m.List(ctxB, StateGarbage, Filter{}, "")
	if err != nil || len(garbage.Messages) == 0 {
		f.t.Fatalf("operator: garbage: %+v, %v", garbage, err)
	}
	dead := garbage.Messages[0].ID
	p := NewPublisher(f.name, cli)
	sent, err := p.Send(ctxB, "by hand", WithDelay(time.Hour), WithKey("by hand"))
	if err != nil {
		f.t.Fatalf("operator: send: %v", err)
	}
	ends := time.Now().Add(time.Hour).UnixMicro()
	for _, err := range []error{f.cli.HSet(ctxB, m.store.keys.key, "held", "acked:x").Err(), f.cli.HSet(ctxB, m.store.keys.state, "held", ends).Err(),
		f.cli.ZAdd(ctxB, m.store.keys.held, redis.Z{Score: float64(ends), Member: "held"}).Err()} {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	for _, step := range []struct {
		what string
		err  error
	}{
		{"release a key", m.ReleaseKey(ctxB, "held")},
		{"requeue", m.Requeue(ctxB, dead)},
		{"reschedule", m.Reschedule(ctxB, dead, time.Now().Add(time.Hour))},
		{"reschedule by", m.RescheduleBy(ctxB, sent.ID, time.Minute)},
		{"run now", m.RunNow(ctxB, sent.ID)},
		{"intercept", failure(p.InterceptKey(ctxB, "by hand"))},
		{"limits", failure(m.SetLimits(ctxB, Limits{Concurrency: 5}))},
		{"unthrottle", failure(m.Unthrottle(ctxB))},
		{"pause", m.PauseUntil(ctxB, time.Now().Add(time.Hour))},
		{"resume", m.Resume(ctxB)},
		{"bulk", failure(m.BulkRescheduleBy(ctxB, Bulk{}, time.Minute))},
		{"delete", m.Delete(ctxB, dead)},
		{"bulk delete", failure(m.BulkDelete(ctxB, Bulk{States: []State{StatePending, StateReady, StateRetry, StateGarbage, StateDone}}))},
		{"delete queue", m.DeleteQueue(ctxB, true)},
	} {
		if step.err != nil {
			f.t.Errorf("operator: %s: %v", step.what, step.err)
		}
	}
}

// refusesReader: whose line is for reading changes nothing, and is told which command it lacks.
func (f *fixture) refusesReader(cli redis.UniversalClient) {
	m := NewMonitor(f.name, cli)
	if _, err := NewPublisher(f.name, f.cli).Send(ctxB, "stays", WithDelay(time.Hour)); err != nil {
		f.t.Fatal(err)
	}
	content := func() *check.State {
		state := f.check()
		state.Now, state.TTLs = 0, nil
		return state
	}
	before := content()
	for what, err := range map[string]error{
		"send":   failure(NewPublisher(f.name, cli).Send(ctxB, "a")),
		"pause":  m.Pause(ctxB),
		"delete": failure(m.BulkDelete(ctxB, Bulk{States: []State{StatePending}})),
	} {
		if err == nil {
			f.t.Errorf("a reader may %s", what)
		} else if text := err.Error(); !strings.Contains(text, "NOPERM") && !strings.Contains(text, "ACL failure") &&
			!strings.Contains(text, "can't run this command") {
			f.t.Errorf("a reader's %s: %v: not the refusal of an ACL", what, err)
		}
	}
	if after := content(); !reflect.DeepEqual(after, before) {
		f.t.Errorf("a reader changed the queue:\n%s\nnow:\n%s", before.Dump(), after.Dump())
	}
}
