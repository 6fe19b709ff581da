package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// payloadSizes are what runPayloads compares, in bytes.
var payloadSizes = []int{payloadSize, 1000, 4000}

// payloadCount is as large a part of a power of two as the 200,000 messages of the memory scenario, so that Redis's
// hash tables are as full.
const payloadCount = 50_000

// runPayloads measures what larger payloads cost, and what a message is on the wire.
func runPayloads(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("payloads", flag.ContinueOnError)
	runs := flags.Int("runs", 5, "measure each size so often, in turn; medians are printed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *runs < 1 {
		return fmt.Errorf("-runs is %d, and must be at least 1", *runs)
	}
	// What goes to a file goes to each replica too.
	log := []string{"--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"}
	var all []scenario
	for _, size := range payloadSizes {
		costs := scenario{name: figure(float64(size)), kind: payloadTable, systems: []string{nameLibrary}, rounds: *runs,
			measure: payloadCosts(size)}
		logs := costs // of the same row, but costs are measured without a log of commands
		logs.args, logs.measure = log, payloadLogs(size)
		all = append(all, costs, logs)
	}
	res, err := newBench(os.Stderr, false).run(ctx, all)
	printTables(os.Stdout, tablesOf(res)) // after an error what there is
	return err
}

// payloadCosts measures memory, CPU and the bytes on the wire.
func payloadCosts(size int) func(t *trial) error {
	return func(t *trial) error {
		if err := t.sendSized(size, batchSize, time.Hour); err != nil { // connections, scripts
			return err
		}
		before, err := t.meter.figures(t.ctx, "used_memory", "total_net_input_bytes")
		if err != nil {
			return err
		}
		sent, err := t.meter.of(t.ctx, func() error { return t.sendSized(size, payloadCount, time.Hour) })
		if err != nil {
			return err
		}
		after, err := t.meter.figures(t.ctx, "used_memory", "total_net_input_bytes")
		if err != nil {
			return err
		}
		f := figures{
			bytesEach: (after[0] - before[0]) / payloadCount, bytesIn: (after[1] - before[1]) / payloadCount,
			sendRedis: sent.per(payloadCount)[redisCPU], sendClient: sent.per(payloadCount)[clientCPU],
		}
		if err := t.sendSized(size, payloadCount, 0); err != nil {
			return err
		}
		if before, err = t.meter.figures(t.ctx, "total_net_output_bytes"); err != nil {
			return err
		}
		drained, err := t.meter.of(t.ctx, func() error { return t.drainSized(payloadCount) })
		if err != nil {
			return err
		}
		if after, err = t.meter.figures(t.ctx, "total_net_output_bytes"); err != nil {
			return err
		}
		f[drainRedis], f[drainClient] = drained.per(payloadCount)[redisCPU], drained.per(payloadCount)[clientCPU]
		f[bytesOut] = (after[0] - before[0]) / payloadCount
		t.report(t.what.name, t.what.kind, f)
		return nil
	}
}

// payloadLogs measures what a server with a log of commands writes.
func payloadLogs(size int) func(t *trial) error {
	return func(t *trial) error {
		sizes := make([]float64, 3)
		for i, do := range []func() error{
			func() error { return nil },
			func() error { return t.sendSized(size, payloadCount, 0) },
			func() error { return t.drainSized(payloadCount) },
		} {
			if err := do(); err != nil {
				return err
			}
			found, err := t.meter.figures(t.ctx, "aof_current_size")
			if err != nil {
				return err
			}
			sizes[i] = found[0]
		}
		t.report(t.what.name, t.what.kind, figures{
			sendLog: (sizes[1] - sizes[0]) / payloadCount, drainLog: (sizes[2] - sizes[1]) / payloadCount,
		})
		return nil
	}
}

// sendSized sends n messages of one size in batches.
func (t *trial) sendSized(size, n int, delay time.Duration) error {
	text := strings.Repeat("x", size)
	return t.fill(n, func(int) message { return message{payload: text, delay: delay} })
}

// drainSized handles n messages that are due.
func (t *trial) drainSized(n int64) error {
	var count atomic.Int64
	all := make(chan struct{})
	stop, err := t.sys.consume(senders, func(string, int) {
		if count.Add(1) == n {
			close(all)
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	select {
	case <-all:
		return nil
	case <-t.ctx.Done():
		return t.ctx.Err()
	case <-time.After(patience):
		return fmt.Errorf("of %d messages %d arrived", n, count.Load())
	}
}
