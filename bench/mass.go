package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// slow is from when on Redis notes how long a command took.
const slow = 500 * time.Microsecond

// mass measures a server on which n messages become due in the same second: how long one
// command holds it, and how a stranger's PING fares.
func mass(n int) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(1); err != nil {
			return err
		}
		n := t.size(n)
		// Half as fast as it can be done, so that all are in when they become due.
		begun := time.Now()
		due := begun.Add(2*time.Second + time.Duration(n)*12*time.Microsecond)
		err := t.fill(n, func(i int) message {
			return message{payload: payload(i), at: due.Add(time.Duration(i%1000) * time.Millisecond)}
		})
		if err != nil {
			return err
		}
		if time.Now().After(due.Add(-time.Second)) {
			return fmt.Errorf("it took %v to send %d messages", time.Since(begun), n)
		}
		seen := newTally(n)
		stop, err := t.sys.consume(senders, seen.handle)
		if err != nil {
			return err
		}
		stop = sync.OnceFunc(stop)
		defer stop()
		quiet, err := strange(t.ctx, t.net.addr, time.Until(due.Add(-200*time.Millisecond)))
		if err != nil {
			return err
		}
		if err := watchHolds(t.ctx, t.admin); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.ctx)
		time.Sleep(time.Until(due))
		var during []float64 // ms of PINGs
		var strangeErr error
		var stranger sync.WaitGroup
		stranger.Go(func() { during, strangeErr = strange(ctx, t.net.addr, patience) })
		c, err := t.meter.of(ctx, func() error { return t.await(seen) })
		took := time.Since(due)
		cancel()
		stranger.Wait()
		if err := errors.Join(err, strangeErr); err != nil {
			return err
		}
		stop()
		hold, err := longestHold(t.ctx, t.admin)
		if err != nil {
			return err
		}
		f := c.per(n)
		f[rate] = float64(n) / took.Seconds()
		f[holdMs], f[pingP99], f[pingMax], f[pingQuiet] = hold, quantile(during, 0.99), quantile(during, 1),
			quantile(quiet, 0.99)
		t.report(t.what.name, t.what.kind, f)
		return t.onlyLeft(0)
	}
}

// watchHolds has Redis note what holds it from now on.
func watchHolds(ctx context.Context, cli *redis.Client) error {
	pipe := cli.Pipeline()
	pipe.ConfigSet(ctx, "slowlog-log-slower-than", strconv.FormatInt(slow.Microseconds(), 10))
	pipe.ConfigSet(ctx, "slowlog-max-len", "100000")
	pipe.ConfigSet(ctx, "latency-monitor-threshold", "1")
	pipe.Do(ctx, "slowlog", "reset")
	pipe.Do(ctx, "latency", "reset")
	_, err := pipe.Exec(ctx)
	return err
}

// longestHold is, in ms, the longest that anything held the server since watchHolds:
// a command, by SLOWLOG, or something else, by LATENCY.
func longestHold(ctx context.Context, cli *redis.Client) (float64, error) {
	longest := 0.0
	logged, err := cli.SlowLogGet(ctx, -1).Result()
	if err != nil {
		return 0, err
	}
	for _, entry := range logged {
		longest = max(longest, entry.Duration.Seconds()*1e3)
	}
	events, err := cli.Do(ctx, "latency", "latest").Slice()
	if err != nil {
		return 0, err
	}
	for _, event := range events {
		// name, when, latest, longest in ms
		fields, ok := event.([]any)
		if !ok || len(fields) < 4 {
			return 0, fmt.Errorf("LATENCY LATEST: %v", event)
		}
		if ms, ok := fields[3].(int64); ok && fields[0] != "command" && fields[0] != "fast-command" {
			longest = max(longest, float64(ms))
		}
	}
	return longest, nil
}

// strangerEnv makes this program a stranger to the server at the address in it.
const strangerEnv = "BENCH_STRANGER"

// pingEvery is how long a stranger waits between its PINGs.
const pingEvery = 500 * time.Microsecond

// strange has another process, whose scheduler and garbage are not ours, PING the server until ctx ends or d has
// passed, and returns how long each took, in ms, sorted.
func strange(ctx context.Context, addr string, d time.Duration) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), strangerEnv+"="+addr)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("stranger: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = stdin.Close() }) // that is its sign to end
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("stranger: %w", err)
	}
	var ms []float64
	for text := range strings.FieldsSeq(string(out)) {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("stranger: %w", err)
		}
		ms = append(ms, v)
	}
	slices.Sort(ms)
	return ms, nil
}

// beStranger PINGs until standard input closes, then prints how long each took, in ms.
func beStranger(addr string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // returns when it is closed
		cancel()
	}()
	cli := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer cli.Close()
	var took []time.Duration
	for ctx.Err() == nil {
		begun := time.Now()
		if err := cli.Ping(context.Background()).Err(); err != nil {
			fmt.Fprintln(os.Stderr, "stranger:", err)
			os.Exit(1)
		}
		took = append(took, time.Since(begun))
		time.Sleep(pingEvery)
	}
	out := bufio.NewWriter(os.Stdout)
	for _, d := range took[min(1, len(took)):] { // the first one made the connection
		fmt.Fprintf(out, "%.4f\n", d.Seconds()*1e3)
	}
	_ = out.Flush() // a reader that has gone does not care
}
