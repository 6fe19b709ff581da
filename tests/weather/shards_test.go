package weather

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
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
		for name, other := range map[string]*delayqueue.DelayQueue{"queue": q,
			"no option": delayqueue.NewQueue(s.Name, s.cli, nil)} {
			var dup *delayqueue.DuplicateKeyError
			if _, err := other.Send(queuetest.CtxB, "y", delayqueue.WithKey(key)); !errors.As(err, &dup) || dup.ID != info.ID {
				t.Errorf("%s: a second message with %s: %v", name, key, err)
			}
		}
		s.Send(q, "x", face.InAnHour, delayqueue.WithLane(key), delayqueue.WithKey("{"+key+"}order"),
			delayqueue.WithSequence("{"+key+"}s", 1))
	}
	if got := s.held(6); !slices.Equal(got, []int64{12, 12, 12, 12, 12, 12}) {
		t.Errorf("the shards have %d messages", got)
	}
	_, err := q.Send(queuetest.CtxB, "x", delayqueue.WithKey("a"), delayqueue.WithLane("b"))
	if !errors.Is(err, delayqueue.ErrBadOption) || !strings.Contains(err.Error(), `"{a}b"`) {
		t.Errorf("names that lie apart: %v", err)
	}
	results, err := q.SendBatch(queuetest.CtxB, []delayqueue.Outgoing{{Options: []delayqueue.MsgOption{face.InAnHour}},
		{Options: []delayqueue.MsgOption{delayqueue.WithKey(keyIn(1, 6))}},
		{Options: []delayqueue.MsgOption{face.InAnHour, delayqueue.WithKey("new")}}})
	if !errors.Is(err, delayqueue.ErrDuplicateKey) || results[0].Err != nil || results[1].Err == nil ||
		results[2].Err != nil {
		t.Errorf("a batch: %+v, %v", results, err)
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

// TestShardsNodeAway: while a node is away, messages without a name go to the others, messages with a name of it
// wait, its shards stop alone, and the log says so once.
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
	if want := fmt.Sprintf("shard %d of 6", gone[0]+1); err == nil || !strings.Contains(err.Error(), want) ||
		face.Fate(s.Fixture, err) != delayqueue.StoredNo {
		t.Errorf("a key of the node: %v, want %q", err, want)
	}
	queuetest.Eventually(t, "all of the others are handled", func() bool { return int(handled.Load()) == sent })
	m := delayqueue.NewMonitor(s.Name, s.cluster.Client(t), delayqueue.WithShards(6))
	if _, err := m.Counts(queuetest.CtxB); !errors.Is(err, delayqueue.ErrMissingShards) ||
		!strings.Contains(err.Error(), "only 4 of 6 shards") {
		t.Errorf("Counts: %v", err)
	}
	node.Restart(t)
	s.Send(q, "y", delayqueue.WithKey(keyIn(gone[0], 6)))
	sent++
	queuetest.Eventually(t, "all are handled", func() bool { return int(handled.Load()) == sent })
	queuetest.Eventually(t, "the log says that it works again", func() bool {
		return strings.Contains(s.Log.String(), "working with Redis again")
	})
	if n := len(regexp.MustCompile("cannot work with Redis.*refused").FindAllString(s.Log.String(),
		-1)); n > 2 { // one of consumers, one of sends
		t.Errorf("the log says %d times that Redis is away", n)
	}
}

// TestShardsFirstAway: programs that start while the first shard does not answer, nor the next ones, learn the number
// of shards from others.
func TestShardsFirstAway(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	first := s.queue(12, nil)
	for range 12 { // one in each shard, which has the number then
		s.Send(first, "x")
	}
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
}

// TestShardsOfOthers: of processes that start at once with different numbers of shards one number holds. Sends of the
// others are refused, and their consumers wait, and say why. A process that asks for none finds out how many there
// are.
func TestShardsOfOthers(t *testing.T) {
	t.Parallel()
	s := onCluster(t)
	got := map[int]chan string{0: make(chan string, 100), 3: make(chan string, 100), 6: make(chan string, 100)}
	asked, refusals := []int{3, 6, 3, 6}, make([]error, 4)
	var queues []*delayqueue.DelayQueue
	var wait sync.WaitGroup
	for i, n := range asked {
		q := s.queue(n, func(payload string) bool { got[n] <- payload; return true })
		queues = append(queues, q)
		wait.Go(func() {
			q.StartConsume()
			_, refusals[i] = q.Send(queuetest.CtxB, "x")
		})
	}
	wait.Wait()
	has, err := s.cli.HGet(queuetest.CtxB, "{dq:"+s.Name+"}:state", "shards").Int()
	s.Must(err)
	other := 9 - has
	for i, n := range asked {
		err, want := refusals[i], fmt.Sprintf("has %d, and this process asks for %d", has, other)
		if n == has && err != nil {
			t.Errorf("a send with %d shards: %v", n, err)
		} else if n != has && (!errors.Is(err, delayqueue.ErrShardCount) || !strings.Contains(err.Error(), want) ||
			face.Fate(s.Fixture, err) != delayqueue.StoredNo) {
			t.Errorf("a send with %d shards: %v, want %q", n, err, want)
		}
	}
	for range 2 {
		queuetest.Receive(t, "a message", got[has])
	}
	queuetest.Eventually(t, "the log says why consumers wait", func() bool {
		return s.Log.Count("call=shards", fmt.Sprint("has ", has)) > 0
	})
	for _, q := range queues {
		q.StopConsume()
	}
	none := delayqueue.NewQueue(s.Name, s.cluster.Client(t), func(payload string) bool { got[0] <- payload; return true }).
		WithLogger(s.Logger())
	s.Stops(none)
	const sends = 60
	for i := range sends { // all at once, so that some are on their way when another one is refused
		wait.Go(func() { s.Send(none, "y", delayqueue.WithKey(fmt.Sprintf("{%s}%d", keyIn(i%has, has), i))) })
	}
	none.StartConsume()
	wait.Wait()
	for range sends {
		queuetest.Receive(t, "a message of a process that asks for no number", got[0])
	}
	if len(got[other]) > 0 {
		t.Errorf("consumers of %d shards have handled %d messages", other, len(got[other]))
	}
}
