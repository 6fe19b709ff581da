package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"
)

// Metrics of the comparison with other queues.
const (
	serverCPU metric = "server CPU us/message"
	never     metric = "never"
	again50   metric = "run again p50 s"
	againMax  metric = "run again max s"
	charged   metric = "retries charged"
	twice     metric = "handled twice"
)

// The titles of the tables.
const (
	titleThroughput = "Throughput, and CPU time of a message"
	titleStrict     = "Throughput with each server at its strictest"
	titleLateness   = "Lateness of messages due at random instants within 20 s"
	titleIdle       = "A consumer that has nothing to do"
	titleBacklog    = "While others are pending"
	titleKill       = "kill -9 of a consumer with 100 messages in hand"
	titleKillBusy   = "kill -9 of one of two consumers that handle 20,000 messages"
)

const (
	killName     = "kill"
	killBusyName = "kill, busy"
	strictSuffix = ", strict"
)

const (
	peerWorkers  = 64
	peerPatience = 60.0 // seconds until what has not come is given up
	idleOver     = time.Minute
)

// peersRun is what runPeers was asked for.
type peersRun struct {
	ctx      context.Context
	full     bool
	quick    bool
	rounds   int
	only     *regexp.Regexp
	res      *results
	late     map[string][]float64 // of all rounds, by contender
	progress *progress
	reports  sync.Mutex
	missing  map[string]error
}

// runPeers measures this library beside what people would pick instead, and writes docs/benchmarks.md.
func runPeers(ctx context.Context, args []string) error {
	r := &peersRun{ctx: ctx, res: &results{}, late: map[string][]float64{}, progress: newProgress(os.Stderr),
		missing: map[string]error{}}
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.BoolVar(&r.full, "full", false, "also with each server at its strictest about durability")
	flags.BoolVar(&r.quick, "quick", false,
		"small numbers and one round: shows that all works, proves nothing; nothing is written")
	only := flags.String("only", "", "measure the contenders whose names match this expression; nothing is written")
	flags.IntVar(&r.rounds, "rounds", 3, "measure all so often, in turns; medians are printed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if r.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if r.quick {
		r.rounds = 1
	}
	begun := time.Now()
	err = r.measure()
	r.progress.end()
	printTables(os.Stdout, append(r.tables(), targetsOf(r.res, peerTargets())))
	if err != nil || r.quick || *only != "" {
		return err
	}
	return r.write(ctx, begun)
}

// A peerStep is one measurement of a contender.
type peerStep struct {
	name   string
	rounds int
	strict bool
	do     func(s *stand) error
}

func (r *peersRun) measure() error {
	present, err := r.present()
	if err != nil {
		return err
	}
	steps := r.steps()
	n, total := 0, 2
	for _, step := range steps {
		total += step.rounds * len(present)
	}
	for round := range 3 * r.rounds {
		for _, step := range steps {
			if round >= step.rounds {
				continue
			}
			for i := range present {
				c := present[(i+round)%len(present)] // another one begins in each round
				n++
				if step.strict && c.alwaysStrict {
					continue
				}
				r.progress.step(n, total, fmt.Sprintf("%s, %s, round %d of %d", step.name, c.name, round+1, step.rounds))
				if err := r.onStand(c, step.strict, step.do); err != nil {
					return fmt.Errorf("%s, %s: %w", step.name, c.name, err)
				}
			}
		}
	}
	r.progress.step(total-1, total, idleName+", all at once")
	if err := r.together(present, r.rounds, r.idle); err != nil {
		return err
	}
	r.progress.step(total, total, "kill -9 of consumers, all at once")
	rounds := killRounds
	if r.quick {
		rounds = 1
	}
	return r.together(present, rounds, r.kill, r.killBusy)
}

// present are the contenders that this machine has; why others are missing is noted. The library must be there, and all
// if nothing else than whether they work is asked.
func (r *peersRun) present() ([]contender, error) {
	var present []contender
	for _, c := range contenders() {
		if !r.only.MatchString(c.name) {
			continue
		}
		if err := r.onStand(c, false, func(*stand) error { return nil }); err != nil {
			if r.ctx.Err() != nil || r.quick || c.name == nameLibrary {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(os.Stderr, "%s is left out: %v\n", c.name, err)
			r.missing[c.name] = err
			continue
		}
		present = append(present, c)
	}
	if present == nil {
		return nil, errors.New("no contender is there that -only matches")
	}
	return present, nil
}

func (r *peersRun) onStand(c contender, strict bool, do func(s *stand) error) error {
	s, err := newStand(r.ctx, c, strict)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.close())
}

// size is n, or a small part of it.
func (r *peersRun) size(n int) int {
	if r.quick {
		return max(n/50, 500)
	}
	return n
}

func (r *peersRun) steps() []peerStep {
	var steps []peerStep
	throughput := func(strict bool, suffix string) {
		for _, send := range []struct {
			name            string
			callers, rounds int
		}{{send1, 1, 3 * r.rounds}, {send64, senders, r.rounds}, {sendBatch, 0, r.rounds}} { // of send1 little differs
			steps = append(steps, peerStep{send.name + suffix, send.rounds, strict, func(s *stand) error {
				return r.send(s, send.name+suffix, send.callers)
			}})
		}
		steps = append(steps, peerStep{drain64 + suffix, r.rounds, strict, func(s *stand) error {
			return r.drain(s, drain64+suffix, r.size(s.drained))
		}})
	}
	throughput(false, "")
	steps = append(steps,
		peerStep{"lateness", r.rounds, false, r.lateness},
		peerStep{"backlog", 1, false, r.backlog},
	)
	if r.full {
		throughput(true, strictSuffix)
	}
	return steps
}

// together measures all contenders at once, so many times each, because nearly all that is done is to wait. What is
// more than that they do in turns.
func (r *peersRun) together(present []contender, rounds int, measures ...func(s *stand, t *turn) error) error {
	var mu, one sync.Mutex
	var errs []error
	var all, first sync.WaitGroup
	for range rounds {
		for _, measure := range measures {
			for _, c := range present {
				first.Add(1)
				all.Go(func() {
					t := &turn{one: &one, first: sync.OnceFunc(func() {
						first.Done()
						first.Wait()
					})}
					t.enter()
					defer t.leave()
					if err := r.onStand(c, false, func(s *stand) error { return measure(s, t) }); err != nil {
						mu.Lock()
						errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
						mu.Unlock()
					}
				})
			}
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// A turn is that of one of several measurements. It is for one goroutine.
type turn struct {
	one   *sync.Mutex
	mine  bool
	first func() // says that its first turn is over, and waits for those of all others
}

func (t *turn) enter() {
	t.one.Lock()
	t.mine = true
}

// leave ends a turn, if it has one.
func (t *turn) leave() {
	if t.mine {
		t.mine = false
		t.one.Unlock()
		t.first()
	}
}
