package weather

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// sharded is a queue of several shards on a Cluster of three.
type sharded struct {
	*face.Fixture
	cluster *redistest.Cluster
	cli     *redis.ClusterClient
}

func onCluster(t *testing.T) *sharded {
	c := redistest.StartCluster(t, 3, 0)
	for _, node := range c.Nodes {
		queuetest.Must(t, node.Client(t).ConfigSet(queuetest.CtxB, "cluster-require-full-coverage", "no").Err())
	}
	cli := c.Client(t)
	return &sharded{Fixture: face.On(t, cli), cluster: c, cli: cli}
}

func (s *sharded) queue(n int, callback delayqueue.CallbackFunc) *delayqueue.DelayQueue {
	q := delayqueue.NewQueue(s.Name, s.cluster.Client(s.T), callback, delayqueue.WithShards(n)).WithLogger(s.Logger())
	s.Stops(q)
	return q
}

// shards are the stores of n shards.
func (s *sharded) shards(n int) (all []*script.Store) {
	for i := range n {
		all = append(all, script.NewShard(s.cli, "dq", s.Name, i, n))
	}
	return all
}

// held is how many messages each of n shards has.
func (s *sharded) held(n int) (all []int64) {
	for _, one := range s.shards(n) {
		all = append(all, s.cli.HLen(queuetest.CtxB, strings.TrimSuffix(one.Keys.State, "state")+"msg").Val())
	}
	return all
}

// on are the shards of n that lie on a node.
func (s *sharded) on(node *redistest.Server, n int) (all []int) {
	for i, one := range s.shards(n) {
		master, err := s.cli.MasterForKey(queuetest.CtxB, one.Keys.State)
		s.Must(err)
		if master.Options().Addr == node.Addr() {
			all = append(all, i)
		}
	}
	return all
}

// keyIn is a key that lies in shard i of n.
func keyIn(i, n int) string {
	for k := 0; ; k++ {
		if key := fmt.Sprint("key-", k); script.ShardOf(key, n) == i {
			return key
		}
	}
}

// TestShardsNames: a message with a name lies in the shard of the name, others lie everywhere, and each id says where.
func TestShardsNames(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	q := s.queue(6, nil)
	for i, first := 0, 0; i < 60; i++ { // they begin at any shard
		info := s.Send(q, "x", face.InAnHour)
		if i == 0 {
			first = (message.ShardIn(info.ID)*6 + 1023) / 1024
		}
		if want := (first + i) % 6; message.ShardIn(info.ID) != want*1024/6 {
			t.Fatalf("message %d has the id %s, want shard %d", i, info.ID, want)
		}
	}
	for i := range 6 {
		key := keyIn(i, 6)
		info := s.Send(q, "x", face.InAnHour, delayqueue.WithKey(key))
		if message.ShardIn(info.ID) != i*1024/6 {
			t.Errorf("%s has the id %s, want shard %d", key, info.ID, i)
		}
		for name, other := range map[string]*delayqueue.DelayQueue{"queue": q, "no option": delayqueue.NewQueue(s.Name, s.cli, nil)} {
			var dup *delayqueue.DuplicateKeyError
			if _, err := other.Send(queuetest.CtxB, "y", delayqueue.WithKey(key)); !errors.As(err, &dup) || dup.ID != info.ID {
				t.Errorf("%s: a second message with %s: %v", name, key, err)
			}
		}
		s.Send(q, "x", face.InAnHour, delayqueue.WithLane(key), delayqueue.WithKey("{"+key+"}order"), delayqueue.WithSequence("{"+key+"}s", 1))
	}
	if got := s.held(6); !slices.Equal(got, []int64{12, 12, 12, 12, 12, 12}) {
		t.Errorf("the shards have %d messages", got)
	}
	_, err := q.Send(queuetest.CtxB, "x", delayqueue.WithKey("a"), delayqueue.WithLane("b"))
	if !errors.Is(err, delayqueue.ErrBadOption) || !strings.Contains(err.Error(), `"{a}b"`) {
		t.Errorf("names that lie apart: %v", err)
	}
	results, err := q.SendBatch(queuetest.CtxB, []delayqueue.Outgoing{{Options: []delayqueue.MsgOption{face.InAnHour}},
		{Options: []delayqueue.MsgOption{delayqueue.WithKey(keyIn(1, 6))}}, {Options: []delayqueue.MsgOption{face.InAnHour, delayqueue.WithKey("new")}}})
	if !errors.Is(err, delayqueue.ErrDuplicateKey) || results[0].Err != nil || results[1].Err == nil || results[2].Err != nil {
		t.Errorf("a batch: %+v, %v", results, err)
	}
}

// TestShardsWhoComesFirst: a key is in one shard, also if a process without the option came before the first that has it.
func TestShardsWhoComesFirst(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(p *delayqueue.Publisher){
		"sends": func(p *delayqueue.Publisher) {
			_, err := p.Send(queuetest.CtxB, "x", face.InAnHour, delayqueue.WithKey("other"))
			queuetest.Must(t, err)
		},
		"cancels": func(p *delayqueue.Publisher) { _, _ = p.CancelKey(queuetest.CtxB, "other") }, // there is no queue
		"nothing": func(p *delayqueue.Publisher) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			p := delayqueue.NewPublisher(f.Name, f.Cli)
			first(p)
			q := delayqueue.NewQueue(f.Name, f.Cli, nil, delayqueue.WithShards(6))
			for i := range 6 {
				info := f.Send(q, "x", face.InAnHour, delayqueue.WithKey(keyIn(i, 6)))
				var dup *delayqueue.DuplicateKeyError
				if _, err := p.Send(queuetest.CtxB, "y", delayqueue.WithKey(keyIn(i, 6))); !errors.As(err, &dup) || dup.ID != info.ID {
					t.Errorf("a second message with the key: %v", err)
				}
			}
		})
	}
}

// TestShardsForgotten: if the node of the first shard loses everything, a key of another shard is still taken.
func TestShardsForgotten(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	q := s.queue(6, nil)
	s.Send(q, "x") // makes the copies
	for i := range 6 {
		s.Send(q, "x", face.InAnHour, delayqueue.WithKey(keyIn(i, 6)))
	}
	node := s.cluster.Nodes[slices.IndexFunc(s.cluster.Nodes, func(n *redistest.Server) bool { return slices.Contains(s.on(n, 6), 0) })]
	lost := s.on(node, 6)
	s.Must(node.Client(t).FlushAll(queuetest.CtxB).Err())
	for i := range 6 {
		if slices.Contains(lost, i) {
			continue
		}
		for asked, opt := range map[int]delayqueue.QueueOption{3: delayqueue.WithShards(3), 5: delayqueue.WithShards(5), 6: delayqueue.WithShards(6)} {
			p := delayqueue.NewPublisher(s.Name, s.cluster.Client(t), opt)
			var dup *delayqueue.DuplicateKeyError
			if _, err := p.Send(queuetest.CtxB, "y", delayqueue.WithKey(keyIn(i, 6))); !errors.As(err, &dup) {
				t.Errorf("a process of %d: a second message with the key of shard %d: %v", asked, i, err)
			}
		}
	}
}

// TestShardsThenAtOnce: a handler of a process that does not know the shards yet may not take a name of another shard.
func TestShardsThenAtOnce(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	s.Send(s.queue(6, nil), "first", delayqueue.WithKey(keyIn(0, 6)))
	got := make(chan error, 1)
	q := s.QueueOn(s.cluster.Client(t), nil).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		got <- delayqueue.Then(ctx, "x", delayqueue.WithKey(keyIn(3, 6)), face.InAnHour)
		return nil
	})
	q.StartConsume()
	if err := queuetest.Receive(t, "the handler's", got); !errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("%v, want ErrBadOption", err)
	}
}

// TestShardsThen: followers go with the acked message.
func TestShardsThen(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	got, refused := make(chan string, 10), make(chan error, 10)
	q := s.queue(3, nil).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		if msg.Payload == "first" {
			refused <- delayqueue.Then(ctx, "x", delayqueue.WithKey("elsewhere"))
			s.Must(delayqueue.Then(ctx, "unnamed"))
			s.Must(delayqueue.Then(ctx, "named", delayqueue.WithKey("{lane}next")))
		}
		got <- fmt.Sprint(msg.Payload, message.ShardIn(msg.ID) == script.ShardOf("lane", 3)*1024/3)
		return nil
	})
	q.StartConsume()
	s.Send(q, "first", delayqueue.WithLane("lane"))
	if err := queuetest.Receive(t, "a refusal", refused); !errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("a follower of another shard: %v", err)
	}
	var all []string
	for range 3 {
		all = append(all, queuetest.Receive(t, "a message", got))
	}
	slices.Sort(all)
	if want := []string{"firsttrue", "namedtrue", "unnamedtrue"}; !slices.Equal(all, want) {
		t.Errorf("handled %q, want %q", all, want)
	}
}

// TestShardsNodeAway: while a node is away, messages without a name go to the others, messages with a name of it wait, its shards stop alone, and
// the log says so once.
func TestShardsNodeAway(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	var handled atomic.Int64
	q := s.queue(6, func(string) bool { handled.Add(1); return true }).WithConcurrent(8)
	q.StartConsume()
	sent := 0
	for range 12 {
		s.Send(q, "x")
		sent++
	}
	queuetest.Eventually(t, "all are handled", func() bool { return int(handled.Load()) == sent })

	node := s.cluster.Nodes[1]
	gone := s.on(node, 6)
	if len(gone) != 2 {
		t.Fatalf("shards %d lie on a node, want 2 of them", gone)
	}
	node.Kill()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); sent++ {
		s.Send(q, "x")
	}
	short, cancel := context.WithTimeout(queuetest.CtxB, testkit.Scaled(time.Second))
	defer cancel()
	_, err := q.Send(short, "y", delayqueue.WithKey(keyIn(gone[0], 6)))
	if want := fmt.Sprintf("shard %d of 6", gone[0]+1); err == nil || !strings.Contains(err.Error(), want) || face.Fate(s.Fixture, err) != delayqueue.StoredNo {
		t.Errorf("a key of the node: %v, want %q", err, want)
	}
	queuetest.Eventually(t, "all of the others are handled", func() bool { return int(handled.Load()) == sent })
	m := delayqueue.NewMonitor(s.Name, s.cluster.Client(t), delayqueue.WithShards(6))
	if _, err := m.Counts(queuetest.CtxB); !errors.Is(err, delayqueue.ErrMissingShards) || !strings.Contains(err.Error(), "only 4 of 6 shards") {
		t.Errorf("Counts: %v", err)
	}
	node.Restart(t)
	s.Send(q, "y", delayqueue.WithKey(keyIn(gone[0], 6)))
	sent++
	queuetest.Eventually(t, "all are handled", func() bool { return int(handled.Load()) == sent })
	queuetest.Eventually(t, "the log says that it works again", func() bool { return strings.Contains(s.Log.String(), "working with Redis again") })
	if n := len(regexp.MustCompile("cannot work with Redis.*refused").FindAllString(s.Log.String(), -1)); n > 2 { // one of consumers, one of sends
		t.Errorf("the log says %d times that Redis is away", n)
	}
}

// TestShardsFirstAway: programs that start while the first shard does not answer, nor the next ones, learn the number of shards from others.
func TestShardsFirstAway(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	s.Send(s.queue(12, nil), "x")
	for _, node := range s.cluster.Nodes {
		if slices.Contains(s.on(node, 12), 0) {
			node.Pause()
			defer node.Resume()
		}
	}
	got := make(chan string, 100)
	q := s.queue(12, func(payload string) bool { got <- payload; return true })
	begun := testkit.Worked()
	q.StartConsume()
	s.Send(q, "y")
	for queuetest.Receive(t, "a message", got) != "y" { // x may be in another shard
	}
	if took := testkit.Worked() - begun; took > 5*time.Second {
		t.Errorf("the first message was handled after %v", took)
	}
	m := delayqueue.NewMonitor(s.Name, s.cluster.Client(t)) // which does not know how many there are
	if _, err := m.Counts(queuetest.CtxB); !errors.Is(err, delayqueue.ErrMissingShards) || !strings.Contains(err.Error(), "of 12 shards") {
		t.Errorf("counts: %v", err)
	}
}

// TestShardsGrow: a queue grows while it is at work. Names stay where they are, and processes that ask for fewer shards follow.
func TestShardsGrow(t *testing.T) {
	t.Parallel()
	for _, from := range []int{1, 3} {
		t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
			t.Parallel()
			s := onCluster(t)
			got := make(chan string, 1000)
			small := s.queue(from, func(payload string) bool { got <- payload; return true }).WithConcurrent(4)
			for i := range from {
				s.Send(small, "old", face.InAnHour, delayqueue.WithKey(keyIn(i, from)))
			}
			small.StartConsume()
			s.Send(small, "x")
			queuetest.Receive(t, "a message", got)

			big := s.queue(6, nil)
			var in []int
			for range 6 {
				info := s.Send(big, "y", face.InAnHour)
				in = append(in, (message.ShardIn(info.ID)*6+1023)/1024)
			}
			if len(slices.Compact(slices.Sorted(slices.Values(in)))) < 5 {
				t.Errorf("messages without a name go to the shards %d", in)
			}
			for i := range from {
				if _, err := big.Send(queuetest.CtxB, "new", delayqueue.WithKey(keyIn(i, from))); !errors.Is(err, delayqueue.ErrDuplicateKey) {
					t.Errorf("a key of before: %v", err)
				}
			}
			for range 30 {
				s.Send(big, "z")
			}
			for range 30 {
				queuetest.Receive(t, "a message of the new shards", got)
			}
			if text := "have other settings"; strings.Contains(s.Log.String(), text) {
				t.Errorf("the log says: %s", text)
			}
			if text := "asks for another number of shards"; from > 1 && strings.Count(s.Log.String(), text) != 1 {
				t.Errorf("the log does not say once: %s", text)
			}
		})
	}
}

// TestShardsDrain: a drain handles what is due in all shards, also what its handlers send.
func TestShardsDrain(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	var n atomic.Int64
	var q *delayqueue.DelayQueue
	q = s.queue(3, func(payload string) bool {
		if n.Add(1) <= 20 {
			s.Send(q, "more")
		}
		return true
	})
	for range 10 {
		s.Send(q, "x")
	}
	handled, err := q.Drain(queuetest.CtxB)
	if err != nil || handled != 30 || n.Load() != 30 {
		t.Errorf("Drain: %d, %v, and %d calls, want 30", handled, err, n.Load())
	}
}

// TestShardsPool: the shards of a queue have the weight of one in a pool, and AtMost workers together.
func TestShardsPool(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	release, most := make(chan struct{}), new(atomic.Int64)
	var running atomic.Int64
	q := s.queue(3, func(string) bool {
		now := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		<-release
		return true
	})
	other := delayqueue.NewQueue(s.Name+"-other", s.cluster.Client(t), func(string) bool { return true })
	for range 30 {
		s.Send(q, "x")
	}
	p := delayqueue.NewPool(8, delayqueue.Share{Queue: q, AtMost: 2}, delayqueue.Share{Queue: other})
	p.StartConsume()
	queuetest.Eventually(t, "two run", func() bool { return running.Load() == 2 })
	time.Sleep(200 * time.Millisecond)
	close(release)
	queuetest.Eventually(t, "all are handled", func() bool { return slices.Max(s.held(3)) == 0 })
	if most.Load() != 2 {
		t.Errorf("%d ran at a time, want 2", most.Load())
	}
	s.Must(p.Shutdown(queuetest.CtxB))
}

// TestShardsAwait: results come from any shard.
func TestShardsAwait(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	q := s.queue(3, nil).WithHandler(face.Echo).WithConcurrent(4)
	q.StartConsume()
	for i := range 12 {
		r, err := q.Call(queuetest.CtxB, fmt.Sprint(i))
		if err != nil || r.Value != fmt.Sprint("to ", i) {
			t.Fatalf("Call: %+v, %v", r, err)
		}
	}
}

// TestShardsSpread: the shards of any name spread over nodes whose slots lie side by side.
func TestShardsSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ shards, nodes, most int }{{3, 3, 1}, {6, 3, 2}, {12, 6, 2}, {16, 3, 6}, {64, 32, 2}} {
		worst := 0
		for name := range 200 {
			on := make([]int, c.nodes)
			for i := range c.shards {
				tag := script.NewShard(nil, "dq", fmt.Sprint("queue-", name), i, c.shards).Keys.State
				on[script.Slot(tag)*c.nodes/16384]++
			}
			worst = max(worst, slices.Max(on))
		}
		if worst > c.most {
			t.Errorf("%d shards on %d nodes: %d lie on one, want at most %d", c.shards, c.nodes, worst, c.most)
		}
	}
}
