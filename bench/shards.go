package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// errTooSlow: the messages were not sent at the rate.
var errTooSlow = errors.New("this machine is too slow, or has other things to do")

const (
	shardsTries   = 3 // if the machine was too slow
	shardsBatch   = 100
	shardsDelay   = time.Second
	shardsSenders = 8               // as many batches are under way at most
	shardsBase    = 4 * time.Second // nodes without a client are measured for so long
	shardsSettle  = 5 * time.Second // until a consumer without work looks as rarely as it does
)

// shardsRun is what runShards was asked for.
type shardsRun struct {
	runs       int
	nodes      []int
	shards     []int
	perSecond  int
	over, idle time.Duration
	workers    int
}

// A shardCase is one row.
type shardCase struct{ nodes, shards int }

// runShards measures what messages cost over several shards of a queue, at a fixed rate, in local Clusters.
func runShards(ctx context.Context, args []string) error {
	r, err := parseShards(args)
	if err != nil {
		return err
	}
	found := map[shardCase][]shardFigures{}
	progress := newProgress(os.Stderr)
	defer func() {
		progress.end()
		printTables(os.Stdout, []table{r.table(found)}) // after an error what there is
	}()
	step, steps := 0, r.runs*len(r.nodes)*len(r.shards)
	for round := range r.runs {
		for _, nodes := range r.nodes {
			err := onCluster(nodes, func(addrs []string) error {
				for i := range r.shards {
					// Another number begins in each round, so that none has the best place.
					c := shardCase{nodes, r.shards[(i+round)%len(r.shards)]}
					step++
					progress.step(step, steps, fmt.Sprintf("%d shards on %d nodes, run %d of %d", c.shards, c.nodes, round+1, r.runs))
					f, err := r.measure(ctx, addrs, c.shards)
					for again := 1; again < shardsTries && errors.Is(err, errTooSlow); again++ {
						f, err = r.measure(ctx, addrs, c.shards)
					}
					if err != nil {
						return fmt.Errorf("%d shards: %w", c.shards, err)
					}
					found[c] = append(found[c], f)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("%d nodes: %w", nodes, err)
			}
		}
	}
	return nil
}

// onCluster runs a Cluster of so many primaries while do runs.
func onCluster(primaries int, do func(addrs []string) error) error {
	c, err := redistest.RunCluster(primaries, 0)
	if err == nil {
		err = do(c.Addrs())
	}
	c.Close()
	return err
}

func parseShards(args []string) (shardsRun, error) {
	r := shardsRun{nodes: []int{3, 6}, shards: []int{1, 3, 6, 12}}
	flags := flag.NewFlagSet("shards", flag.ContinueOnError)
	flags.IntVar(&r.runs, "runs", 3, "measure all so often, in turn; medians are printed")
	flags.Func("nodes", "numbers of primaries (default 3,6)", numbers(&r.nodes, 16))
	flags.Func("shards", "numbers of shards; the first is what others are compared with (default 1,3,6,12)",
		numbers(&r.shards, maxShards))
	flags.IntVar(&r.perSecond, "rate", 30_000, "messages a second, in batches of 100")
	flags.DurationVar(&r.over, "time", 8*time.Second, "how long messages are sent")
	flags.DurationVar(&r.idle, "idle", 15*time.Second, "how long the consumer is watched without work")
	flags.IntVar(&r.workers, "workers", 64, "of the consumer")
	if err := flags.Parse(args); err != nil {
		return r, err
	}
	switch {
	case flags.NArg() > 0:
		return r, fmt.Errorf("%q is not a flag", flags.Arg(0))
	case r.runs < 1 || r.workers < 1:
		return r, errors.New("-runs and -workers must be at least 1")
	case r.perSecond < shardsBatch || r.over < time.Second || r.idle < time.Second:
		return r, fmt.Errorf("-rate must be at least %d, -time and -idle at least 1s", shardsBatch)
	}
	return r, nil
}

// numbers reads a list such as 1,3,6.
func numbers(to *[]int, most int) func(string) error {
	return func(text string) error {
		*to = nil
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil || n < 1 || n > most {
				return fmt.Errorf("%q is not a list of numbers from 1 to %d", text, most)
			}
			*to = append(*to, n)
		}
		return nil
	}
}

// shardFigures are what one measurement found.
type shardFigures struct {
	redisCPU, clientCPU float64 // us a message
	busiest             float64 // CPU of the busiest node with a shard, as a part beyond their mean
	with                float64 // nodes with a shard
	p50, p99            float64 // ms
	calls               float64 // scripts a message, of sender and consumer
	idleCalls           float64 // scripts and BZPOPMIN a second, of a consumer without work
	idleTrips           float64 // round trips a second on its connections
}

// table shows medians, and ratios to the first number of shards in the same run.
func (r shardsRun) table(found map[shardCase][]shardFigures) table {
	t := table{
		title: fmt.Sprintf("One queue over several shards, %s messages/s", figure(float64(r.perSecond))),
		head: []string{"nodes", "shards", "with shards", "Redis CPU us", "x", "busiest node %", "client CPU us", "x",
			"scripts", "p50 ms", "p99 ms",
			"idle: calls/s", "idle: trips/s"},
	}
	for _, nodes := range r.nodes {
		base := found[shardCase{nodes, r.shards[0]}]
		for _, shards := range r.shards {
			all := found[shardCase{nodes, shards}]
			if len(all) == 0 {
				continue
			}
			of := func(get func(shardFigures) float64) string {
				var values []float64
				for _, f := range all {
					values = append(values, get(f))
				}
				return figure(median(values))
			}
			ratio := func(get func(shardFigures) float64) string {
				var values []float64
				for run, f := range all[:min(len(all), len(base))] {
					values = append(values, get(f)/get(base[run]))
				}
				return figure(median(values))
			}
			redis, client := func(f shardFigures) float64 { return f.redisCPU }, func(f shardFigures) float64 {
				return f.clientCPU
			}
			t.lines = append(t.lines, []string{strconv.Itoa(nodes), strconv.Itoa(shards),
				of(func(f shardFigures) float64 { return f.with }),
				of(redis), ratio(redis), of(func(f shardFigures) float64 { return 100 * f.busiest }), of(client), ratio(client),
				of(func(f shardFigures) float64 { return f.calls }),
				of(func(f shardFigures) float64 { return f.p50 }), of(func(f shardFigures) float64 { return f.p99 }),
				of(func(f shardFigures) float64 { return f.idleCalls }), of(func(f shardFigures) float64 { return f.idleTrips })})
		}
	}
	return t
}

// measure measures one number of shards, on nodes that are empty.
func (r shardsRun) measure(ctx context.Context, addrs []string, shards int) (shardFigures, error) {
	nodes := make(nodeMeters, len(addrs))
	for i, addr := range addrs {
		cli := redis.NewClient(&redis.Options{Addr: addr})
		defer cli.Close()
		if err := cli.FlushAll(ctx).Err(); err != nil {
			return shardFigures{}, err
		}
		nodes[i] = &meter{cli: cli, net: &network{}}
	}
	// What nodes do for each other, clients or not.
	base, err := nodes.of(ctx, func() error { return wait(ctx, shardsBase) })
	if err != nil {
		return shardFigures{}, err
	}
	s := &shardTrial{shardsRun: r, n: int(float64(r.perSecond)*r.over.Seconds()) / shardsBatch * shardsBatch,
		consumer: &network{}}
	sending, consuming := clusterClient(addrs, &network{}), clusterClient(addrs, s.consumer)
	defer sending.Close()
	defer consuming.Close()
	name := fmt.Sprintf("shards-%d", shards)
	s.pub = delayqueue.NewPublisher(name, sending, delayqueue.WithShards(shards))
	queue := delayqueue.NewQueue(name, consuming, nil,
		delayqueue.WithShards(shards)).WithHandler(s.handle).WithConcurrent(r.workers).
		WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	done := queue.StartConsume()
	defer func() { queue.StopConsume(); <-done }()

	if err := s.send(ctx, r.perSecond/2/shardsBatch*shardsBatch); err != nil &&
		!errors.Is(err, errTooSlow) { // connections, scripts
		return shardFigures{}, fmt.Errorf("warming up: %w", err)
	}
	busy, err := nodes.of(ctx, func() error { return s.send(ctx, s.n) })
	if err != nil {
		return shardFigures{}, err
	}
	out := busy.figures(base, s.n)
	late := make([]float64, s.n)
	for i := range late {
		late[i] = float64(s.late[i].Load()) / 1e6
	}
	slices.Sort(late)
	out.p50, out.p99 = quantile(late, 0.5), quantile(late, 0.99)

	if err := wait(ctx, shardsSettle); err != nil {
		return out, err
	}
	trips := s.consumer.trips.Load()
	still, err := nodes.of(ctx, func() error { return wait(ctx, r.idle) })
	out.idleTrips = float64(s.consumer.trips.Load()-trips) / still.wall.Seconds()
	out.idleCalls = float64(still.scripts+still.waits) / still.wall.Seconds()
	return out, err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func clusterClient(addrs []string, net *network) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Dialer: net.dial})
}

// A shardTrial sends messages, and notes how late they are handled.
type shardTrial struct {
	shardsRun
	n        int
	consumer *network
	pub      *delayqueue.Publisher
	*tally
	late []atomic.Int64 // ns
}

func (s *shardTrial) handle(_ context.Context, msg *delayqueue.Message) error {
	late := time.Since(msg.Due) // the servers have this machine's clock
	if i := s.mark(msg.Payload); i >= 0 {
		s.late[i].Store(int64(late))
	}
	return nil
}

// send sends n messages at the rate, and returns when all have been handled.
func (s *shardTrial) send(ctx context.Context, n int) error {
	s.tally, s.late = newTally(n), make([]atomic.Int64, n) // handlers see them after Redis has had the messages
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	starts := make(chan int)
	over := make(chan struct{}, shardsSenders)
	for range shardsSenders {
		go func() {
			defer func() { over <- struct{}{} }()
			for first := range starts {
				if err := s.sendBatch(ctx, first); err != nil {
					cancel(err)
				}
			}
		}()
	}
	begun := time.Now()
	for i := 0; i < n && ctx.Err() == nil; i += shardsBatch {
		due := begun.Add(time.Duration(float64(i) / float64(s.perSecond) * float64(time.Second)))
		if err := wait(ctx, time.Until(due)); err != nil {
			break
		}
		select {
		case starts <- i:
		case <-ctx.Done():
		}
	}
	took := time.Since(begun)
	close(starts)
	for range shardsSenders {
		<-over
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var slow error
	if most := time.Duration(
		float64(n)/float64(s.perSecond)*float64(time.Second))*11/10 + 100*time.Millisecond; took > most {
		slow = fmt.Errorf("%w: %d messages took %v to send with -rate %d", errTooSlow, n, took.Round(time.Millisecond),
			s.perSecond)
	}
	select {
	case <-s.all:
	case <-ctx.Done():
	case <-time.After(patience):
	}
	return cmp.Or(context.Cause(ctx), s.tally.err(), slow)
}

func (s *shardTrial) sendBatch(ctx context.Context, first int) error {
	batch := make([]delayqueue.Outgoing, shardsBatch)
	options := []delayqueue.MsgOption{delayqueue.WithDelay(shardsDelay)}
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: payload(first + i), Options: options}
	}
	_, err := s.pub.SendBatch(ctx, batch)
	return err
}

// nodeMeters are meters of the nodes of a Cluster.
type nodeMeters []*meter

// A nodesCost is what a stretch of work cost the nodes and the client.
type nodesCost struct {
	wall, client   time.Duration
	nodes          []time.Duration // CPU of each
	ran            []int64         // scripts of each
	scripts, waits int64           // of all: calls of scripts, and of BZPOPMIN
}

// of measures a stretch of work.
func (m nodeMeters) of(ctx context.Context, work func() error) (nodesCost, error) {
	before, err := m.read(ctx)
	if err != nil {
		return nodesCost{}, err
	}
	begun := time.Now()
	if err := work(); err != nil {
		return nodesCost{}, err
	}
	c, err := m.read(ctx)
	if err != nil {
		return nodesCost{}, err
	}
	c.wall = time.Since(begun)
	c.client -= before.client
	c.scripts -= before.scripts
	c.waits -= before.waits
	for i := range m {
		c.nodes[i] -= before.nodes[i]
		c.ran[i] -= before.ran[i]
	}
	return c, nil
}

func (m nodeMeters) read(ctx context.Context) (c nodesCost, err error) {
	for _, node := range m {
		r, err := node.read(ctx)
		if err != nil {
			return c, err
		}
		info, err := node.info(ctx, "commandstats")
		if err != nil {
			return c, err
		}
		ran := callsIn(info, "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall")
		c.nodes, c.ran, c.scripts = append(c.nodes, r.redisCPU), append(c.ran, ran), c.scripts+ran
		c.waits += callsIn(info, "bzpopmin")
	}
	c.client, err = ownCPU()
	return c, err
}

// callsIn counts calls of some commands in INFO commandstats.
func callsIn(info map[string]string, commands ...string) (sum int64) {
	for _, name := range commands {
		text, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_"+name], "calls="), ",")
		n, err := strconv.ParseInt(text, 10, 64)
		if err == nil { // else it was never called
			sum += n
		}
	}
	return sum
}

// figures are those for each of n messages. base is what the nodes cost without clients.
func (c nodesCost) figures(base nodesCost, n int) shardFigures {
	var sum, busiest, with float64
	for i, cpu := range c.nodes {
		own := base.nodes[i].Seconds() / base.wall.Seconds() * c.wall.Seconds()
		used := max(cpu.Seconds()-own, 0)
		sum += used
		if c.ran[i] > 0 {
			with++
			busiest = math.Max(busiest, used)
		}
	}
	f := shardFigures{redisCPU: sum * 1e6 / float64(n), clientCPU: c.client.Seconds() * 1e6 / float64(n), with: with,
		calls: float64(c.scripts) / float64(n)}
	if sum > 0 {
		f.busiest = busiest/(sum/with) - 1
	}
	return f
}
