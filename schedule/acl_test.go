package schedule

import (
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// TestLeastPrivilege: what docs/acl.md gives a scheduler, an operator and a reader is enough for what they do, and a
// reader changes nothing.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		addr := redistest.Start(t).Addr()
		leastPrivilege(t, []string{addr}, func(user, password string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: password})
		})
	})
	t.Run("cluster", func(t *testing.T) {
		addrs := redistest.StartCluster(t, 2, 0).Addrs()
		leastPrivilege(t, addrs, func(user, password string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: user, Password: password})
		})
	})
}

func leastPrivilege(t *testing.T, addrs []string, client func(user, password string) redis.UniversalClient) {
	var nodes []*redis.Client
	for _, addr := range addrs {
		node := queuetest.RedisClient(t, addr)
		nodes = append(nodes, node)
		queuetest.SetUsers(t, node, len(addrs) > 1)
	}
	as := func(user string) redis.UniversalClient {
		cli := client(user, "secret")
		t.Cleanup(func() { _ = cli.Close() })
		return cli
	}
	admin := client("", "")
	t.Cleanup(func() { _ = admin.Close() })
	f := fixtureOn(t, admin)
	f.name = "orders"
	f.schedules(New(delayqueue.NewPublisher(f.name, as("scheduler"))))
	f.schedules(New(delayqueue.NewPublisher(f.name, as("operator"))))
	reader := ops.Of(delayqueue.NewMonitor(f.name, as("reader")))
	f.looks(reader)
	for _, node := range nodes {
		if all := queuetest.Refusals(t, node); len(all) > 0 {
			t.Errorf("refused: %q", all)
		}
	}
	before := f.cli.HGetAll(f.ctx(), newLooker(reader).table.store.Keys.Schedules).Val()
	s := New(delayqueue.NewPublisher(f.name, as("reader")))
	for what, err := range map[string]error{"pause": s.Pause(f.ctx(), "tick"),
		"set": s.Set(f.ctx(), Entry{Name: "new", Every: time.Hour})} {
		if err == nil {
			t.Errorf("a reader may %s", what)
		}
	}
	if after := f.cli.HGetAll(f.ctx(), newLooker(reader).table.store.Keys.Schedules).Val(); len(after) != len(before) ||
		after["tick"] != before["tick"] {
		t.Errorf("a reader changed %v to %v", before, after)
	}
	for _, node := range nodes {
		f.must(node.Do(f.ctx(), "ACL", "SETUSER", "scheduler", "-info").Err())
	}
	f.schedules(New(delayqueue.NewPublisher(f.name, as("scheduler"))))
}

// schedules does all that a Scheduler can do. It leaves the entries tick, which runs, and paused.
func (f *fixture) schedules(s *Scheduler) {
	f.Helper()
	for _, e := range []Entry{
		{Name: "tick", Every: time.Second, Payload: "x"}, {Name: "skips", Every: time.Second, Overlap: Skip},
		{Name: "paused", Cron: "30 9 * * *", Zone: "Asia/Tokyo"}, {Name: "gone", Every: 2 * time.Second},
	} {
		f.must(s.Set(f.ctx(), e))
	}
	before, _ := f.lastOf("tick")
	stop := f.run(s)
	for _, name := range []string{"tick", "skips"} {
		f.until(name+" runs", func() bool { at, gen := f.lastOf(name); return at > before+3 && gen > 0 })
	}
	f.must(queuetest.Failure(s.RunNow(f.ctx(), "tick")))
	if _, err := s.RunNow(f.ctx(), "skips"); !errors.Is(err, delayqueue.ErrDuplicateKey) {
		f.Errorf("run now of what skips: %v", err)
	}
	f.must(s.Set(f.ctx(), Entry{Name: "tick", Every: time.Second, Payload: "y"}))
	f.must(s.Pause(f.ctx(), "tick"))
	f.must(s.Resume(f.ctx(), "tick"))
	f.must(s.Pause(f.ctx(), "paused"))
	f.must(s.Remove(f.ctx(), "gone"))
	f.until("tick runs again", func() bool { at, _ := f.lastOf("tick"); return at > 0 })
	stop()
	all, err := s.List(f.ctx())
	if err != nil || len(all) != 3 {
		f.Errorf("List: %+v, %v", all, err)
	}
	if next, err := s.Next(f.ctx(), "paused", 3); err != nil || len(next) != 3 {
		f.Errorf("Next: %v, %v", next, err)
	}
}

// lastOf is the last instant of an entry in its generation, 0 if it had none.
func (f *fixture) lastOf(name string) (at, gen int64) {
	n, _ := ops.Of(delayqueue.NewMonitor(f.name, f.cli)).Sequence(f.ctx(), sequenceOf(name))
	gen, at = split(max(n, 0))
	return at, gen
}

// looks sees, through a Monitor, what schedules has left.
func (f *fixture) looks(m *ops.Queue) {
	f.Helper()
	all, err := List(f.ctx(), m.Monitor())
	if err != nil || len(all) != 3 {
		f.Fatalf("List: %+v, %v", all, err)
	}
	paused, skips, tick := all[0], all[1], all[2]
	if paused.Name != "paused" || !paused.Paused || !paused.Next.IsZero() || paused.Zone != "Asia/Tokyo" {
		f.Errorf("%+v", paused)
	}
	last, _ := f.lastOf("tick")
	if tick.Paused || tick.Next.IsZero() || tick.Last.Unix() != last || tick.Payload != "y" {
		f.Errorf("%+v; the last instant is %d", tick, last)
	}
	if skips.Overlap != Skip || skips.Last.IsZero() {
		f.Errorf("%+v", skips)
	}
	now := f.now()
	next, err := Next(f.ctx(), m.Monitor(), "paused", 2)
	if err != nil || len(next) != 2 || next[0].Format("15:04 -0700") != "09:30 +0900" ||
		next[1].Sub(next[0]) != 24*time.Hour ||
		next[0].Unix() <= now {
		f.Errorf("Next: %v, %v", next, err)
	}
	if _, err := Next(f.ctx(), m.Monitor(), "none", 2); !errors.Is(err, ErrNoEntry) {
		f.Errorf("Next of none: %v", err)
	}
}
