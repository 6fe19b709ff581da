package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	envelopes "github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// This file counts the machine instructions of redis-server for each kind of call. A count does not depend on how
// fast the machine is, and repeats within one percent, so it shows changes that no time shows.

const (
	callCost metric = "thousand instructions/call"
	eachCost metric = "thousand instructions/message"

	countedCalls  = 200  // of each kind, so that Lua collects its garbage some times
	countedBatch  = 100  // messages of a large call
	countedOthers = 5000 // messages that wait in each queue meanwhile

	// countedPatience is how long a call may take. Under callgrind a server is fifty times slower.
	countedPatience = time.Minute
)

// countInstructions reports what each kind of call costs, on a server of its own.
func countInstructions(t *trial) error {
	dir, err := os.MkdirTemp("", "bench-callgrind-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &countedServer{ctx: t.ctx, dir: dir}
	if err := s.start(); err != nil {
		return err
	}
	defer s.close()
	steps, err := s.steps()
	if err != nil {
		return err
	}
	for _, calls := range []int{1, int(countedCalls * t.b.scale)} { // the first call of each kind loads its script
		for _, step := range steps {
			cost, err := s.count(calls, step.call)
			if err != nil {
				return fmt.Errorf("%s: %w", cmp.Or(step.name, "preparation"), err)
			}
			if calls == 1 || step.name == "" {
				continue
			}
			f := figures{callCost: cost}
			if step.messages > 1 {
				f[eachCost] = cost / float64(step.messages)
			}
			t.report(step.name, t.what.kind, f)
		}
	}
	return nil
}

// A countedServer is a redis-server under callgrind. It writes a file at each ECHO.
type countedServer struct {
	ctx     context.Context
	server  *redistest.Server
	cli     *redis.Client
	dir     string // of the files
	dumps   int
	nothing float64 // thousands of instructions that an ECHO costs
}

func (s *countedServer) start() (err error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return fmt.Errorf("instructions are counted by valgrind, which is in Debian's package valgrind: %w", err)
	}
	// What the server does once a second in any case (serverCron) is not counted.
	path, wrapper := os.Getenv(redistest.ServerEnv), filepath.Join(s.dir, "server")
	text := fmt.Sprintf("#!/bin/sh\nexec valgrind --quiet --tool=callgrind --callgrind-out-file='%s/out' "+
		"--dump-before=echoCommand --toggle-collect=serverCron --collect-atstart=yes '%s' \"$@\"\n",
		s.dir, cmp.Or(path, "redis-server"))
	if err := errors.Join(os.WriteFile(wrapper, []byte(text), 0o700),
		os.Setenv(redistest.ServerEnv, wrapper)); err != nil {
		return err
	}
	s.server, err = redistest.Run("--hz", "1", "--dynamic-hz", "no", "--slowlog-log-slower-than", "-1")
	if err := errors.Join(err, os.Setenv(redistest.ServerEnv, path)); err != nil { // "" is as if it were not set
		return err
	}
	s.cli = redis.NewClient(&redis.Options{Addr: s.server.Addr(), ReadTimeout: countedPatience, MaxRetries: -1,
		WriteBufferSize: 1 << 20}) // a call is one write, so that the server reads it at once
	return nil
}

func (s *countedServer) close() {
	_ = s.cli.Close()
	s.server.Close()
}

// count is how many thousands of instructions each of some calls costs.
func (s *countedServer) count(calls int, call func() error) (float64, error) {
	// Lua collects garbage in cycles of many calls. So each count begins at the same point of a cycle.
	if err := s.cli.Eval(s.ctx, "return collectgarbage()", nil).Err(); err != nil {
		return 0, err
	}
	if _, err := s.dump(); err != nil {
		return 0, err
	}
	for range calls {
		if err := call(); err != nil {
			return 0, err
		}
	}
	n, err := s.dump()
	return (n - s.nothing) / float64(calls), err
}

// dump is how many thousands of instructions were counted since the last dump.
func (s *countedServer) dump() (float64, error) {
	if err := s.cli.Echo(s.ctx, "").Err(); err != nil {
		return 0, err
	}
	s.dumps++
	text, err := os.ReadFile(fmt.Sprintf("%s/out.%d", s.dir, s.dumps))
	if err != nil {
		return 0, fmt.Errorf("callgrind has not seen a call of echoCommand; has the server no symbols? %w", err)
	}
	return readTotal(string(text))
}

// readTotal reads the sum of all costs in a file of callgrind, in thousands.
func readTotal(text string) (float64, error) {
	_, rest, _ := strings.Cut(text, "\ntotals: ")
	digits, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("totals of callgrind: %w", err)
	}
	return n / 1000, nil
}

// A countedStep makes calls of one kind.
type countedStep struct {
	name     string // "": a preparation, which is not reported
	messages int    // of each call; 0: it has none
	call     func() error
}

// steps are the kinds of calls. Small calls come first, because large ones leave garbage in Lua. What one step sends,
// the next fetches.
func (s *countedServer) steps() ([]countedStep, error) {
	var err error
	if s.nothing, err = s.count(1, func() error { return nil }); err != nil {
		return nil, err
	}
	q, laned, limited := s.queue("plain"), s.queue("lanes"), s.queue("limit")
	for _, q := range []*countedQueue{q, laned, limited} {
		if _, err := s.count(countedOthers/script.MaxBatch, q.send(script.MaxBatch, time.Hour, nil)); err != nil {
			return nil, err
		}
	}
	laned.laned = true
	limited.limits = script.RateLimits{Rate: 1_000_000, Per: time.Second, Burst: 1_000_000}
	var plain script.FetchRequest
	keyed, lane := &script.PutOptions{On: script.ConflictKeep}, &script.PutOptions{Laned: true}
	const ack, retry = script.OutcomeAck, script.OutcomeRetry
	empty := script.New("", "return 0")
	return []countedStep{
		{"empty script", 0, func() error { _, err := q.Eval(s.ctx, empty, 0); return err }},
		{"send, 1 (single.lua)", 1, q.send(1, 0, nil)},
		{"fetch, 1", 1, q.fetch(1, plain)},
		{"settle, 1 ack", 1, q.settle(ack)},
		{"", 1, q.send(1, 0, nil)},
		{"", 1, q.fetch(1, plain)},
		{"settle, 1 retry", 1, q.settle(retry)},
		{"fetch, idle, all read", 0, q.fetch(0, plain)},
		{"fetch, idle, by the alarm", 0, q.fetch(0, script.FetchRequest{ByAlarm: true})},
		{"put, 1 with a key (put.lua)", 1, q.send(1, time.Hour, keyed)},
		{"put, 1 with a lane", 1, laned.send(1, 0, lane)},
		{"fetch, 1 with a lane", 1, laned.fetch(1, plain)},
		{"settle, 1 ack with a lane", 1, laned.settle(ack)},
		{"", 1, limited.send(1, 0, nil)},
		{"fetch, 1, rate limit", 1, limited.fetch(1, plain)},
		{"", 1, limited.settle(ack)},
		{"", 10, q.send(10, 0, nil)},
		{"", 10, q.fetch(10, plain)},
		{"settle, 10 retries", 10, q.settle(retry)},
		{"send, 100 (send.lua)", countedBatch, q.send(countedBatch, 0, nil)},
		{"fetch, 100", countedBatch, q.fetch(countedBatch, plain)},
		{"settle, 100 acks", countedBatch, q.settle(ack)},
		{"", countedBatch, q.send(countedBatch, 0, nil)},
		{"fetch, 100, ids alone, then HMGET", countedBatch, q.fetch(countedBatch, script.FetchRequest{Apart: countedBatch})},
		{"", countedBatch, q.settle(ack)},
	}, nil
}

// A countedQueue is called as publishers and consumers call it.
type countedQueue struct {
	*script.Store
	ctx                       context.Context
	sender, consumer, settler *script.Caller
	limits                    script.RateLimits
	laned                     bool                  // each message has a lane, called as its id
	held                      [][]script.Settlement // what each fetch brought and no call has settled
}

func (s *countedServer) queue(name string) *countedQueue {
	q := &countedQueue{Store: script.NewStore(s.cli, "dq", name), ctx: s.ctx,
		sender: script.NewCaller(), consumer: script.NewCaller(), settler: script.NewCaller()}
	q.AttemptTimeout = countedPatience
	return q
}

// send sends messages that are due after a delay, by put if there are options of it.
func (q *countedQueue) send(n int, delay time.Duration, put *script.PutOptions) func() error {
	return func() error {
		all := make([]*script.SendMessage, n)
		for i := range all {
			id, w := uuid.Must(uuid.NewV7()).String(), envelopes.When{Us: delay.Microseconds()}
			e := envelopes.Envelope{Payload: payload(i), Retries: 3}
			switch {
			case put != nil && put.Laned: // a lane each
				e.Lane = envelopes.Lane{Name: id, Width: 1}
			case put != nil:
				e.Key = id
			}
			all[i] = &script.SendMessage{ID: id, Key: e.Key, When: w, Version: e.Version(), Text: e.Encode(w), Put: put}
		}
		q.sender.Next()
		_, err := q.Send(q.ctx, q.sender, script.SendRequest{Messages: all})
		return err
	}
}

// fetch fetches so many messages. If that is none, none is due.
func (q *countedQueue) fetch(n int, request script.FetchRequest) func() error {
	return func() error {
		request.Want, request.Limits = max(n, 1), q.limits
		request.Settings = &script.FetchSettings{Lease: time.Hour, MaxLosses: 3}
		q.consumer.Next()
		got, err := q.Fetch(q.ctx, q.consumer, request)
		if err != nil || n == 0 && len(got.Tags) == 0 {
			return err
		}
		if len(got.Tags) != n {
			return fmt.Errorf("fetched %d messages, want %d", len(got.Tags), n)
		}
		all := make([]script.Settlement, n)
		for i, tag := range got.Tags {
			all[i] = script.Settlement{Lease: got.Lease, Tag: tag, ID: tag, Number: 1}
			if q.laned {
				all[i].Lane = envelopes.Lane{Name: tag, Width: 1}.Text()
			}
		}
		q.held = append(q.held, all)
		return nil
	}
}

// settle settles what the first fetch brought that is not settled yet.
func (q *countedQueue) settle(kind script.OutcomeKind) func() error {
	return func() error {
		all := q.held[0]
		q.held = q.held[1:]
		for i := range all {
			if o := &all[i]; kind == script.OutcomeRetry {
				o.Kind, o.Failed, o.Failures, o.Delay, o.Text = kind, true, 1, time.Hour, "connection refused"
			}
		}
		q.settler.Next()
		got, err := q.Settle(q.ctx, q.settler, all, false)
		if lost := len(got.Void) + len(got.Left); lost > 0 {
			err = fmt.Errorf("%d of %d settlements had no effect", lost, len(all))
		}
		return err
	}
}
