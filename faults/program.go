package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// An order is what a program is started with, in JSON.
type order struct {
	Role  string // producer or consumer
	Name  string
	Dir   string // of its ledger
	Redis reach
	Load  load
	Begun int64 // unix us at which sending began
	Share int   // of a producer: which part of the imports it sends
}

const (
	producer = "producer"
	consumer = "consumer"
	queue    = "faults"
)

// reach is how programs reach Redis.
type reach struct {
	Addrs          []string
	Master         string // of Sentinel
	Cluster        bool
	User, Password string
	CA             string // PEM of who signed the server's certificate
	PoolSize       int    // 0: go-redis's own
}

// client makes a client with no settings but where Redis is and how to get in, and its pool where a
// scenario is about that.
func (r reach) client() redis.UniversalClient {
	opt := &redis.UniversalOptions{
		Addrs: r.Addrs, MasterName: r.Master, IsClusterMode: r.Cluster, Username: r.User, Password: r.Password,
		PoolSize: r.PoolSize,
	}
	if r.CA != "" {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(r.CA))
		opt.TLSConfig = &tls.Config{RootCAs: roots}
	}
	return redis.NewUniversalClient(opt)
}

// load is what is sent, and how it is handled.
type load struct {
	Messages  int // of all producers
	Producers int
	Over      time.Duration // in which they are sent
	MaxDelay  time.Duration
	Slow      time.Duration // what a slow handler takes at most
	Lease     time.Duration
	RunOn     bool // handlers run on when their contexts end
	Workers   int
	Patience  time.Duration // of a send
	Replicas  int           // of WithReplicaAck, which waits for them so long:
	Confirm   time.Duration
	Warm      int           // connections of its client that a program uses at once before it begins
	Keep      time.Duration // of WithRetention; 0: without
	Links     int           // messages that follow each one, after the other
	Foreign   int           // goroutines of a consumer that block on its client for something else
	Keys      int           // that producers send changes of; 0: they send messages of their own
	Parts     int           // that a group may have, which those keys are; 0: none is
	Entries   int           // of schedules, which producers run; 0: they send messages of their own
	Limits    ops.Limits
	Pool      []int         // the weights of the queues that consumers handle with a pool; nil: there is one queue
	Rows      int           // of each outbox, which producers relay; 0: they send messages of their own
	Imports   int           // which those outboxes are; 0: none is
	Lanes     int           // that messages have; 0: they have none
	Shards    int           // that programs ask for; 0: they ask for none
	Names     int           // keys that half of the messages share; 0: a fifth of them have keys of their own
	Haste     time.Duration // how long a send with such a key tries; 0: as long as the others
	KillsOne  int           // one message of so many kills its consumer; 0: none does
}

var usual = load{
	Messages: 21_000, Producers: 2, Over: 12 * time.Second, MaxDelay: 5 * time.Second, Slow: 500 * time.Millisecond,
	Lease: 1500 * time.Millisecond, Workers: 32, Patience: 20 * time.Second, Confirm: 200 * time.Millisecond,
}

const (
	consumers  = 3
	retries    = 3
	retryDelay = 200 * time.Millisecond
	maxLosses  = 3
)

// manner is how handlers treat a payload, whoever calls them.
type manner struct {
	slow     bool
	failures int  // so many deliveries fail first
	givesUp  bool // ErrSkipRetry
	kills    bool // its process
}

func manners(payload string) (m manner) {
	sum := fnv.New32a()
	sum.Write([]byte(payload)) // never fails
	switch n := sum.Sum32() % 1000; {
	case n < 20:
		m.slow = true
	case n < 60:
		m.failures = 1
	case n < 70:
		m.failures = 2
	case n < 72:
		m.failures = retries + 1 // to garbage
	case n < 75:
		m.givesUp = true
	}
	return m
}

// serve is the main function of a program.
func serve(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	before := runtime.NumGoroutine()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	book, err := openLedger(o.Dir, o.Name)
	if err != nil {
		return err
	}
	cli := o.Redis.client()
	var opts []delayqueue.QueueOption
	if o.Load.Shards > 0 {
		opts = append(opts, delayqueue.WithShards(o.Load.Shards))
	}
	queues := make([]*delayqueue.DelayQueue, max(len(o.Load.Pool), 1))
	for i := range queues {
		queues[i] = delayqueue.NewQueue(queueOf(i), cli, nil, opts...).WithDefaultRetryCount(retries).
			WithReplicaAck(o.Load.Replicas, o.Load.Confirm).WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	warm(ctx, cli, o.Load.Warm)
	watched := make(chan struct{})
	go func() { watch(ctx, book); close(watched) }()
	switch o.Role {
	case producer:
		sendAll(ctx, queues, ops.Of(delayqueue.NewMonitor(queue, cli)), book, o)
	case consumer:
		for range o.Load.Foreign {
			go block(ctx, cli)
		}
		err = consume(ctx, queues, book, o)
	}
	stop()
	<-watched
	if err := errors.Join(err, cli.Close()); err != nil {
		return err
	}
	for limit := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+1 && time.Now().Before(limit); {
		<-time.After(10 * time.Millisecond) // ctx has ended: nothing else is waited for
	}
	// signal.NotifyContext leaves one behind, the runtime's own for signals.
	book.write(entry{Kind: quit, Count: runtime.NumGoroutine() - before - 1})
	return nil
}

// sendAll is what a producer does.
func sendAll(ctx context.Context, queues []*delayqueue.DelayQueue, monitor *ops.Queue, book ledger, o order) {
	q := queues[0]
	switch {
	case o.Load.Pool != nil:
		produceAll(ctx, queues, book, o)
	case o.Load.Imports > 0:
		sendImports(ctx, relayer{q: q, monitor: monitor, book: book, order: o})
	case o.Load.Rows > 0:
		relay(ctx, relayer{q: q, monitor: monitor, book: book, order: o})
	case o.Load.Entries > 0:
		replicate(ctx, q, book, o)
	case o.Load.Parts > 0:
		appendParts(ctx, q, book, o)
	case o.Load.Keys > 0:
		edit(ctx, q, book, o)
	default:
		produce(ctx, q, book, o)
	}
}

// warm leaves n connections in a client's pool.
func warm(ctx context.Context, cli redis.UniversalClient, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() { cli.BLPop(ctx, time.Second, foreignKey) }) // nothing is there
	}
	all.Wait()
}

// foreignKey is not of the queue, and nobody writes it.
const foreignKey = "somebody else's"

// block waits for what never comes until ctx ends; then the end of cli ends the last call.
func block(ctx context.Context, cli redis.UniversalClient) {
	for ctx.Err() == nil {
		cli.BLPop(ctx, 0, foreignKey)
	}
}

// watch notes twice a second what the program takes up.
func watch(ctx context.Context, book ledger) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		book.write(entry{Kind: standing, Count: runtime.NumGoroutine()})
	}
}

// step is how many messages a sender takes at a time: as a batch, or one after the other.
const step = 5

// produce sends its share of the messages, evenly over time.
func produce(ctx context.Context, q *delayqueue.DelayQueue, book ledger, o order) {
	var senders sync.WaitGroup
	steps := make(chan int)
	for range sendersOf(o.Load) {
		senders.Go(func() {
			for n := range steps {
				sendStep(ctx, q, book, o, n)
			}
		})
	}
	share := o.Load.Messages / o.Load.Producers
	begun := time.Now()
	for n := 0; n < share && ctx.Err() == nil; n += step {
		select {
		case <-time.After(time.Until(begun.Add(o.Load.Over * time.Duration(n) / time.Duration(share)))):
			steps <- n
		case <-ctx.Done():
		}
	}
	close(steps)
	senders.Wait()
}

func sendStep(ctx context.Context, q *delayqueue.DelayQueue, book ledger, o order, first int) {
	batch := make([]delayqueue.Outgoing, step)
	for i := range batch {
		payload := fmt.Sprintf("%s-%06d", o.Name, first+i)
		batch[i].Payload = payload
		batch[i].Options = append(batch[i].Options, delayqueue.WithDelay(rand.N(o.Load.MaxDelay).Truncate(time.Millisecond)))
		if o.Load.Keep > 0 {
			batch[i].Options = append(batch[i].Options, delayqueue.WithRetention(o.Load.Keep))
		}
		if i == 0 {
			batch[i].Options = append(batch[i].Options, delayqueue.WithKey(payload), delayqueue.WithHeader("from", o.Name))
		}
	}
	patience := o.Load.Patience
	switch {
	case o.Load.Lanes > 0:
		inLane(o.Load, first, batch)
	case o.Load.Names > 0:
		patience = inNames(o.Load, first, batch)
	}
	begun := time.Now()
	note := func(payload string, info *delayqueue.MessageInfo, err error) {
		took := time.Since(begun).Microseconds()
		if err != nil {
			kind := refused
			if o.Load.Names > 0 && errors.Is(err, delayqueue.ErrDuplicateKey) {
				kind = taken
			}
			book.write(entry{Kind: kind, Payload: payload, Word: err.Error(), Took: took})
			return
		}
		book.write(entry{Kind: sent, Payload: payload, ID: info.ID, Due: info.Due.UnixMicro(), Took: took})
	}
	if first/step%2 == 0 {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		results, _ := q.SendBatch(ctx, batch) // each result has its own error
		for i, r := range results {
			note(batch[i].Payload, r.Info, r.Err)
		}
		return
	}
	for _, m := range batch {
		begun = time.Now()
		ctx, cancel := context.WithTimeout(ctx, patience)
		info, err := q.Send(ctx, m.Payload, m.Options...)
		cancel()
		note(m.Payload, info, err)
	}
}

var errAgain = errors.New("not this time")

// consume handles messages until ctx ends.
func consume(ctx context.Context, queues []*delayqueue.DelayQueue, book ledger, o order) error {
	for _, q := range queues {
		handle(q, book, o)
	}
	consumer := consumerOf(queues, o.Load)
	consumer.StartConsume()
	<-ctx.Done()
	limit, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	return consumer.Shutdown(limit)
}

// handle says how messages of a queue are handled.
func handle(q *delayqueue.DelayQueue, book ledger, o order) {
	q.WithLease(o.Load.Lease).WithConcurrent(o.Load.Workers).WithMaxLosses(maxLosses).WithNackRedeliveryDelay(retryDelay)
	if l := o.Load.Limits; l.Rate > 0 {
		q.WithRateLimit(l.Rate, l.Per, l.Burst).WithQueueConcurrency(l.Concurrency)
	}
	q.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		e := entry{Kind: started, Payload: payloadOf(msg), Parts: msg.Parts, ID: msg.ID, Delivery: msg.Delivery,
			Failures: msg.Failures,
			Left:     msg.CountdownLeft}
		book.write(e)
		e.Parts, e.Left = nil, 0
		if err := delayqueue.SetResult(ctx, resultOf(o.Name, msg)); err != nil { // which is dropped unless it is kept
			return err
		}
		e.Kind = ended
		var err error
		e.Word, err = work(ctx, msg, mannersIn(o.Load, e.Payload), o.Load)
		book.write(e)
		return err
	})
}

// work is what a handler does after its start. It returns how the handler ends, and what it returns.
func work(ctx context.Context, msg *delayqueue.Message, m manner, l load) (word string, err error) {
	takes := rand.N(2 * time.Millisecond)
	if m.slow {
		takes = l.Slow/2 + rand.N(l.Slow/2)
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	over := ctx.Done()
	if l.RunOn {
		over = nil
	}
	select {
	case <-timer.C:
	case <-over:
		return cutOff, context.Cause(ctx)
	}
	switch {
	case m.kills:
		os.Exit(1)
	case m.givesUp:
		return gaveUp, delayqueue.ErrSkipRetry
	case msg.Failures < m.failures:
		return failed, errAgain
	}
	if err := follow(ctx, msg, l); err != nil {
		return failed, err
	}
	return succeeded, nil
}

// follow names what follows a message that was handled well.
func follow(ctx context.Context, msg *delayqueue.Message, l load) error {
	switch {
	case l.Imports > 0:
		return addToSum(ctx, msg, l.Keep)
	case linkOf(msg.Payload) < l.Links:
		return delayqueue.Then(ctx, msg.Payload+linkMark, delayqueue.WithDelay(rand.N(linkDelay).Truncate(time.Millisecond)))
	}
	return nil
}
