package weather

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// TestSendWithoutContextGivesUp: calls without a context try for 10 s, and say what they wanted
// and why it failed.
func TestSendWithoutContextGivesUp(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	for name, c := range map[string]struct {
		away func(s *redistest.Server)
		back func(s *redistest.Server, t testing.TB)
		text string // a pattern of the last attempt's error
	}{
		"nobody listens": {(*redistest.Server).Kill, (*redistest.Server).Restart, "connection refused"},
		// to a first command
		"the server hangs": {(*redistest.Server).Pause, func(s *redistest.Server, _ testing.TB) { s.Resume() },
			"no connection was ready|no answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, server := face.OwnServer(t)
			cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), DialerRetries: 1, ReadTimeout: limit / 10})
			c.away(server)
			p := delayqueue.NewPublisher(f.Name, cli)
			var all sync.WaitGroup
			for call, do := range map[string]func(p *delayqueue.Publisher) error{
				"SendDelayMsg":    func(p *delayqueue.Publisher) error { return p.SendDelayMsg("x", time.Hour) },
				"SendScheduleMsg": func(p *delayqueue.Publisher) error { return p.SendScheduleMsg("x", time.Now().Add(time.Hour)) },
				"TryIntercept": func(p *delayqueue.Publisher) error {
					_, err := p.TryIntercept(&delayqueue.MessageInfo{ID: uuid.NewString()})
					return err
				},
			} {
				all.Go(func() {
					begun, worked := time.Now(), testkit.Worked()
					err := do(p)
					if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) < limit || testkit.Worked()-worked > 2*limit {
						t.Errorf("%s: %v after %v, want a deadline exceeded after %v", call, err, time.Since(begun), limit)
						return
					}
					named := regexp.MustCompile(`queue "` + f.Name +
						`": (send message|intercept id) [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}: `)
					if !named.MatchString(err.Error()) || !regexp.MustCompile(c.text).MatchString(err.Error()) {
						t.Errorf("%s: %v; want the queue, the id, and %q", call, err, c.text)
					}
				})
			}
			all.Wait()
			c.back(server, t)
		})
	}
}

// TestSendRepeatedIsNotReplicated: the repeat goes over another connection, on which WAIT alone
// would confirm what no replica has.
func TestSendRepeatedIsNotReplicated(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := startReplica(t, primary)
	f := face.On(t, redis.NewClient(&redis.Options{Addr: primary.Addr()}))
	wire := redistest.NewWire(t, primary.Addr())
	q := f.QueueOn(queuetest.RedisClient(t, wire.Addr()), nil).WithReplicaAck(1, queuetest.Patience)
	f.Send(q, "replicated", delayqueue.WithDelay(time.Hour)) // the replica is in step, and the script is loaded
	has := func(info *delayqueue.MessageInfo) bool {
		t.Helper()
		ok, err := queuetest.RedisClient(t, replica.Addr()).HExists(context.Background(), f.KeyOf(info.ID, "msg"),
			info.ID).Result()
		f.Must(err)
		return ok
	}

	replica.Pause()
	q.WithReplicaAck(1, 300*time.Millisecond)
	struck := wire.DropReply(redistest.Script(script.SendScript.SHA))
	info, err := q.Send(context.Background(), "not replicated", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	queuetest.Receive(t, "the reply is dropped", struck)
	if !errors.Is(err, delayqueue.ErrNotReplicated) || info == nil || !strings.Contains(err.Error(), "0 of 1") ||
		!strings.Contains(err.Error(), info.ID) {
		t.Fatalf("the repeated send: %+v, %v; want ErrNotReplicated, 0 of 1, with the id", info, err)
	}
	if state := f.Check(); len(state.Pending) != 2 || state.Where(info.ID) != "pending" ||
		state.Messages[info.ID].Due != info.Due.UnixMicro() {
		t.Errorf("the message is not there once, as %+v:\n%s", info, state.Dump())
	}

	// Once the replica goes on a repeat is confirmed, be it WAIT's reply that was lost.
	replica.Resume()
	q.WithReplicaAck(1, queuetest.Patience)
	for reply, match := range map[string]func(cmd []string) bool{
		"script's": redistest.Script(script.SendScript.SHA),
		"WAIT's":   func(cmd []string) bool { return cmd[0] == "wait" },
	} {
		struck := wire.DropReply(match)
		again, err := q.Send(context.Background(), "replicated late", delayqueue.WithDelay(time.Hour))
		queuetest.Receive(t, "the reply is dropped", struck)
		if err != nil || !has(again) {
			t.Errorf("the %s reply was lost: %+v, %v", reply, again, err)
		}
	}
	if n := len(f.Check().Pending); n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
}

// TestBadReplyIsAnError of the call that got it, which is not repeated.
func TestBadReplyIsAnError(t *testing.T) {
	t.Parallel()
	cli := queuetest.ClientWith(t, &redis.Options{})
	calls := 0
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			if slices.Contains(cmd.Args(), any(script.ForgetScript.SHA)) {
				return nil // nobody waits for it
			}
			calls++
			switch cmd := cmd.(type) {
			case *redis.StringSliceCmd:
				cmd.SetVal([]string{"OK"})
			case *redis.IntCmd:
				cmd.SetVal(-1) // what is no number the client refuses by itself
			}
			return nil
		})))
	p := delayqueue.NewPublisher("bad-replies", cli)
	for call, do := range map[string]func() error{
		"SendDelayMsg": func() error { return p.SendDelayMsg("x", time.Hour) },
		"TryIntercept": func() error { _, err := p.TryIntercept(&delayqueue.MessageInfo{ID: "the id"}); return err },
		"GetPendingCount": func() error {
			_, err := delayqueue.NewMonitor("bad-replies", cli).GetPendingCount(context.Background())
			return err
		},
	} {
		calls = 0
		if err := do(); !errors.Is(err, script.ErrBadReply) || !strings.Contains(err.Error(), `"bad-replies"`) || calls != 1 {
			t.Errorf("%s: %v after %d calls, want script.ErrBadReply and the queue after one", call, err, calls)
		}
	}
}

// TestForeignCallNumber: who writes a call number into state stops no sender, and who steers at most once.
func TestForeignCallNumber(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	info := f.Send(q, "before", face.InAnHour)
	state := f.Key("state")
	spoil := func() {
		t.Helper()
		for field := range f.Cli.HGetAll(queuetest.CtxB, state).Val() {
			if strings.HasPrefix(field, "call:") {
				f.Must(f.Cli.HSet(queuetest.CtxB, state, field, fmt.Sprintf("99999999 %d ", time.Now().UnixMicro())).Err())
			}
		}
	}
	spoil()
	f.Send(q, "alone", face.InAnHour)
	spoil()
	f.Send(q, "with a key", face.InAnHour, delayqueue.WithKey("k"))
	spoil()
	if _, err := q.SendBatch(queuetest.CtxB, []delayqueue.Outgoing{{Payload: "one"},
		{Payload: "other", Options: []delayqueue.MsgOption{delayqueue.WithKey("l")}}}); err != nil {
		t.Error(err)
	}
	spoil()
	_, _ = q.Intercept(queuetest.CtxB, info.ID)
	if got, err := q.Intercept(queuetest.CtxB, info.ID); err != nil || !got.Intercepted &&
		got.State != delayqueue.StateGone {
		t.Errorf("intercept: %+v, %v", got, err)
	}
}

// TestStoredWithoutServer: a dial that fails sends nothing; what was written to a server that hangs may arrive.
func TestStoredWithoutServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := face.On(t,
		redis.NewClient(&redis.Options{Addr: server.Addr(), // the connection of the first send serves the next, too
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}}))
	q := f.Queue(nil)
	face.NeverForgets(t, f.Cli) // forgetting would have that connection when the next send wants it
	f.Send(q, "first", face.InAnHour)
	var err error
	for range 5 {
		server.Pause()
		_, err = q.Send(queuetest.Within(t, 3*time.Second), "hangs", face.InAnHour)
		if face.Fate(f, err) != delayqueue.StoredNo {
			break
		}
		server.Resume() // a slow machine had replaced the connection, so nothing was written
		f.Send(q, "once more", face.InAnHour)
	}
	if got := face.Fate(f, err); got != delayqueue.StoredUnknown {
		t.Errorf("a server that hangs: %v: %v", got, err)
	}
	server.Kill()
	cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), DialerRetries: 1})
	nobody := delayqueue.NewPublisher(f.Name, cli).WithLogger(f.Logger())
	_, err = nobody.Send(f.UntilSendsFail(), "nobody listens", face.InAnHour)
	if got := face.Fate(f, err); got != delayqueue.StoredNo || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody listens: %v: %v", got, err)
	}
	results, err := nobody.SendBatch(queuetest.Within(t, 300*time.Millisecond), make([]delayqueue.Outgoing, 1200))
	for _, r := range results {
		if got := face.Fate(f, r.Err); got != delayqueue.StoredNo || r.Info == nil {
			t.Fatalf("nobody listens: %v: %v", got, err)
		}
	}
	server.Restart(t)
}
