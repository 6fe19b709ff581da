package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// A scenario is one thing to measure.
type scenario struct {
	name    string
	kind    kind     // the table it belongs to
	systems []string // those that have the concept
	rounds  int
	args    []string // of redis-server
	measure func(t *trial) error
}

// A trial is one measurement: one system, on a fresh server.
type trial struct {
	ctx    context.Context
	b      *bench
	res    *results
	what   scenario
	system string
	net    *network
	sys    system
	admin  *redis.Client // of the bench itself, not counted
	meter  *meter
	pace   time.Duration // of sends, from warm
}

// bench runs scenarios.
type bench struct {
	scale    float64 // of the numbers of messages
	quick    bool
	progress *progress
	measure  func(ctx context.Context, res *results, s scenario, system string) error // adds what it finds to res
}

// newBench returns a bench whose measurements are trials in this process.
func newBench(out *os.File, quick bool) *bench {
	b := &bench{scale: 1, quick: quick, progress: newProgress(out)}
	if quick {
		b.scale = 0.05
	}
	b.measure = b.try
	return b
}

// run measures scenarios, the systems in turns, and returns what it found, after an error too. The rounds of a scenario
// are spread over the whole run, because a machine is not always as fast.
func (b *bench) run(ctx context.Context, chosen []scenario) (*results, error) {
	defer b.progress.end()
	steps, most := 0, 0
	for _, s := range chosen {
		steps += b.roundsOf(s) * len(s.systems)
		most = max(most, b.roundsOf(s))
	}
	res, step := &results{}, 0
	for round := range most {
		for _, s := range chosen {
			if round >= b.roundsOf(s) {
				continue
			}
			for i := range s.systems {
				// Another one begins in each round, so that none has the best place.
				name := s.systems[(i+round)%len(s.systems)]
				step++
				b.progress.step(step, steps, fmt.Sprintf("%s, %s, round %d of %d", s.name, name, round+1, b.roundsOf(s)))
				if err := b.measure(ctx, res, s, name); err != nil {
					return res, fmt.Errorf("%s, %s: %w", s.name, name, err)
				}
			}
		}
	}
	return res, nil
}

func (b *bench) roundsOf(s scenario) int {
	if b.quick {
		return 1
	}
	return max(s.rounds, 1)
}

// try runs one trial.
func (b *bench) try(ctx context.Context, res *results, s scenario, name string) error {
	server, err := redistest.Run(s.args...)
	if err != nil {
		return err
	}
	defer server.Close()
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	net := &network{addr: server.Addr()}
	sys := openers[name](net)
	defer sys.close()
	return s.measure(&trial{
		ctx: ctx, b: b, res: res, what: s, system: name,
		net: net, sys: sys, admin: admin, meter: &meter{cli: admin, net: net},
	})
}

// report adds a sample to a row.
func (t *trial) report(name string, k kind, f figures) {
	r := t.res.row(name, k)
	r.Samples[t.system] = append(r.Samples[t.system], f)
}

// size is how many messages to use.
func (t *trial) size(n int) int {
	return max(int(float64(n)*t.b.scale)/batchSize, 2) * batchSize
}

// fill stores messages as fast as the system can.
func (t *trial) fill(n int, make func(i int) message) error {
	batch := []message{}
	for i := 0; i < n; i += batchSize {
		batch = batch[:0]
		for j := i; j < min(i+batchSize, n); j++ {
			batch = append(batch, make(j))
		}
		if err := t.sys.sendBatch(t.ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
