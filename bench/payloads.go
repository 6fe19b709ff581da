package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// payloadSizes are what runPayloads compares, in bytes.
var payloadSizes = []int{payloadSize, 1000, 4000}

// payloadCount is as large a part of a power of two as the 200,000 messages of the memory scenario, so that Redis's hash tables are as full.
const payloadCount = 50_000

// payloadCost is what a message of one size costs.
type payloadCost struct {
	memory, sendRedis, sendClient, sendIn, drainRedis, drainClient, drainOut, sendLog, drainLog float64
}

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
	found := map[int][]payloadCost{}
	for range *runs {
		for _, size := range payloadSizes {
			cost, err := measurePayload(ctx, size)
			if err != nil {
				return fmt.Errorf("%d bytes: %w", size, err)
			}
			found[size] = append(found[size], cost)
		}
	}
	t := table{title: "Larger payloads: a message sent in batches of 500, and drained by 64 workers", head: []string{"payload", "memory",
		"send: Redis CPU us", "client CPU us", "bytes in", "drain: Redis CPU us", "client CPU us", "bytes out", "log of send", "log of drain"}}
	for _, size := range payloadSizes {
		line := []string{figure(float64(size))}
		for _, of := range []func(payloadCost) float64{
			func(c payloadCost) float64 { return c.memory },
			func(c payloadCost) float64 { return c.sendRedis }, func(c payloadCost) float64 { return c.sendClient },
			func(c payloadCost) float64 { return c.sendIn },
			func(c payloadCost) float64 { return c.drainRedis }, func(c payloadCost) float64 { return c.drainClient },
			func(c payloadCost) float64 { return c.drainOut },
			func(c payloadCost) float64 { return c.sendLog }, func(c payloadCost) float64 { return c.drainLog },
		} {
			var values []float64
			for _, c := range found[size] {
				values = append(values, of(c))
			}
			line = append(line, figure(median(values)))
		}
		t.lines = append(t.lines, line)
	}
	printTables(os.Stdout, []table{t})
	return nil
}

// measurePayload measures one size, costs without a log of commands, and then the log with one.
func measurePayload(ctx context.Context, size int) (payloadCost, error) {
	var c payloadCost
	if err := onServer(func(p *payloadTrial) error { return p.costs(ctx, size, &c) }); err != nil {
		return c, err
	}
	// What goes to a file goes to each replica too.
	return c, onServer(func(p *payloadTrial) error { return p.logged(ctx, size, &c) },
		"--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")
}

// A payloadTrial measures one size on a server of its own.
type payloadTrial struct {
	sys   system
	meter *meter
}

func onServer(do func(p *payloadTrial) error, args ...string) error {
	server, err := redistest.Run(args...)
	if err != nil {
		return err
	}
	defer server.Close()
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	net := &network{addr: server.Addr()}
	sys := openLibrary(net)
	defer sys.close()
	return do(&payloadTrial{sys: sys, meter: &meter{cli: admin, net: net}})
}

// costs measures memory, CPU and the bytes on the wire.
func (p *payloadTrial) costs(ctx context.Context, size int, c *payloadCost) error {
	if err := p.send(ctx, size, batchSize, time.Hour); err != nil { // connections, scripts
		return err
	}
	before, err := p.infos(ctx, "used_memory", "total_net_input_bytes")
	if err != nil {
		return err
	}
	cost, err := p.meter.of(ctx, func() error { return p.send(ctx, size, payloadCount, time.Hour) })
	if err != nil {
		return err
	}
	after, err := p.infos(ctx, "used_memory", "total_net_input_bytes")
	if err != nil {
		return err
	}
	each := cost.per(payloadCount)
	c.sendRedis, c.sendClient = each[redisCPU], each[clientCPU]
	c.memory, c.sendIn = (after[0]-before[0])/payloadCount, (after[1]-before[1])/payloadCount
	if err := p.send(ctx, size, payloadCount, 0); err != nil {
		return err
	}
	if before, err = p.infos(ctx, "total_net_output_bytes"); err != nil {
		return err
	}
	if cost, err = p.meter.of(ctx, func() error { return p.drain(ctx, payloadCount) }); err != nil {
		return err
	}
	if after, err = p.infos(ctx, "total_net_output_bytes"); err != nil {
		return err
	}
	each = cost.per(payloadCount)
	c.drainRedis, c.drainClient, c.drainOut = each[redisCPU], each[clientCPU], (after[0]-before[0])/payloadCount
	return nil
}

// logged measures what a server with a log of commands writes.
func (p *payloadTrial) logged(ctx context.Context, size int, c *payloadCost) error {
	sizes := make([]float64, 3)
	for i, do := range []func() error{
		func() error { return nil },
		func() error { return p.send(ctx, size, payloadCount, 0) },
		func() error { return p.drain(ctx, payloadCount) },
	} {
		if err := do(); err != nil {
			return err
		}
		found, err := p.infos(ctx, "aof_current_size")
		if err != nil {
			return err
		}
		sizes[i] = found[0]
	}
	c.sendLog, c.drainLog = (sizes[1]-sizes[0])/payloadCount, (sizes[2]-sizes[1])/payloadCount
	return nil
}

// send sends n messages of one size in batches.
func (p *payloadTrial) send(ctx context.Context, size, n int, delay time.Duration) error {
	text := strings.Repeat("x", size)
	batch := make([]message, batchSize)
	for i := range batch {
		batch[i] = message{payload: text, delay: delay}
	}
	for range n / batchSize {
		if err := p.sys.sendBatch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// drain handles n messages that are due.
func (p *payloadTrial) drain(ctx context.Context, n int64) error {
	var count atomic.Int64
	all := make(chan struct{})
	stop, err := p.sys.consume(senders, func(string) {
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
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return fmt.Errorf("of %d messages %d arrived", n, count.Load())
	}
}

// infos reads figures of INFO.
func (p *payloadTrial) infos(ctx context.Context, names ...string) ([]float64, error) {
	info, err := p.meter.info(ctx, "memory", "stats", "persistence")
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(names))
	for i, name := range names {
		if out[i], err = strconv.ParseFloat(info[name], 64); err != nil {
			return nil, fmt.Errorf("INFO: %s: %w", name, err)
		}
	}
	return out, nil
}
