//go:build unix

// Cluster shows a queue over many slots of a Redis Cluster (WithShards), and what the queue does while a node is dead.
//
// The program starts a Cluster of three primaries and three replicas, on free ports and in a temporary folder. It sends
// messages at a steady rate, and shows what each node does. Then:
//
//   - The primary of the first shard is killed. Its shards stop. Sends go on, because a message without a key may go
//     to any shard.
//   - The replica of the primary takes over. Its shards go on, with the messages that they had.
//   - The killed node is started again, and becomes a replica.
//
// The end is a summary of what was sent, handled and lost. redis-server or valkey-server must be in PATH.
//
//	go run ./examples/cluster
//	go run ./examples/cluster -shards 12 -down 20s
//	go run ./examples/cluster | tee cluster.log
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const (
	queueName = "orders"
	workers   = 32
	delay     = time.Second // of each message
	stopLimit = 3 * time.Second
	patience  = 30 * time.Second // for a failover, and for the last messages
)

// The phases of the program.
const (
	before = iota // all nodes are well
	down          // a primary is dead; its replica takes over after a while
	after         // the killed node is started again
)

// settings are the flags.
type settings struct {
	phases       [3]time.Duration
	shards, rate int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()      // a second Ctrl-C changes nothing, because the servers must be stopped
	logging.Disable() // go-redis has a line for each failed dial; the queue logs an outage once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. Its result is the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	var s settings
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.DurationVar(&s.phases[before], "before", 8*time.Second, "time until a primary is killed")
	flags.DurationVar(&s.phases[down], "down", 14*time.Second, "time until the primary is started again")
	flags.DurationVar(&s.phases[after], "after", 12*time.Second, "time after that")
	flags.IntVar(&s.shards, "shards", 6, "shards of the queue, from 2 to 64")
	flags.IntVar(&s.rate, "rate", 2000, "messages a second")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if flags.NArg() > 0 || min(s.phases[before], s.phases[down], s.phases[after]) <= 0 || s.shards < 2 || s.shards > 64 ||
		s.rate < 1 {
		fmt.Fprintln(errs,
			"cluster: no arguments, -before, -down and -after more than 0, -shards from 2 to 64, -rate at least 1; -h tells "+
				"more")
		return 2
	}
	fmt.Fprintln(out, "starting a Redis Cluster of three primaries and three replicas …")
	nodes, err := startNodes(ctx)
	defer nodes.stop()
	if err == nil {
		err = play(ctx, s, nodes, out)
	} else if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		fmt.Fprintln(errs, "cluster:", err)
		return 1
	}
	return 0
}

// play sends and handles messages, and shows what the nodes do.
func play(ctx context.Context, s settings, nodes nodes, out io.Writer) error {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.addrs()})
	defer cluster.Close()
	t := &traffic{}
	w := newWatch(out, nodes, t, s.shards)
	queue := delayqueue.NewQueue(queueName, cluster, nil, delayqueue.WithShards(s.shards)).
		WithHandler(t.handle).
		WithConcurrent(workers).
		WithLogger(slog.New(slog.NewTextHandler(w, nil)))
	done := queue.StartConsume()
	sending, stop := context.WithCancel(ctx)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		t.send(sending, queue, s.rate)
	}()

	err := w.killOne(ctx, s)
	stop()
	<-sent
	if err == nil {
		w.until(ctx, patience, t.over) // the last messages come due
	}
	stopping, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if serr := queue.Shutdown(stopping); ctx.Err() == nil { // after a Ctrl-C the dead node may not answer in time
		err = errors.Join(err, serr)
	}
	<-done
	w.draw()
	fmt.Fprint(out, t.summary(ctx.Err() != nil))
	return err
}

// killOne kills the primary of the first shard, and starts it again.
func (w *watch) killOne(ctx context.Context, s settings) error {
	never := func() bool { return false }
	first := func() int {
		return slices.IndexFunc(w.nodes, func(n *node) bool { return slices.Contains(w.seen[n].shards, 1) })
	}
	w.until(ctx, s.phases[before], never)
	w.until(ctx, patience, func() bool { return first() >= 0 }) // on a busy machine the first look takes longer
	i := first()
	if ctx.Err() != nil {
		return nil
	} else if i < 0 {
		return errors.New("no node has the first shard")
	}
	w.traffic.phase.Store(down)
	w.killed, w.killedAt = w.nodes[i], time.Now()
	w.killed.kill()
	w.say("%s is killed, and shards %s stop", w.killed.name(), numbers(w.seen[w.killed].shards))
	w.until(ctx, s.phases[down], never)
	// If the primary came back empty before its replica has taken over, its messages would be lost.
	w.until(ctx, patience, func() bool { return w.heir != nil })
	if ctx.Err() != nil {
		return nil
	} else if w.heir == nil {
		return fmt.Errorf("no replica of %s has taken over", w.killed.name())
	}
	w.traffic.phase.Store(after)
	w.say("%s is started again", w.killed.name())
	if err := w.killed.start(ctx); err != nil {
		return err
	}
	w.until(ctx, s.phases[after], never)
	w.until(ctx, patience, func() bool { return w.back })
	return nil
}
