package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A meter reads what a stretch of work costs both sides. It has a client of its own, whose
// commands it does not count.
type meter struct {
	cli *redis.Client
	net *network
}

// A reading is the state of all counters at an instant.
type reading struct {
	at        time.Time
	redisCPU  time.Duration
	clientCPU time.Duration
	commands  int64
	trips     int64
	mallocs   uint64
}

// A cost is the difference of two readings.
type cost struct {
	wall, redisCPU, clientCPU time.Duration
	commands, trips, allocs   float64
}

// of measures a stretch of work.
func (m *meter) of(ctx context.Context, work func() error) (cost, error) {
	runtime.GC() // what was made before is not this stretch's to clean up
	before, err := m.read(ctx)
	if err != nil {
		return cost{}, err
	}
	if err := work(); err != nil {
		return cost{}, err
	}
	after, err := m.read(ctx)
	if err != nil {
		return cost{}, err
	}
	return cost{
		wall: after.at.Sub(before.at), redisCPU: after.redisCPU - before.redisCPU,
		clientCPU: after.clientCPU - before.clientCPU,
		commands:  float64(after.commands - before.commands), trips: float64(after.trips - before.trips),
		allocs: float64(after.mallocs - before.mallocs),
	}, nil
}

// per are the figures of a cost for each of n messages.
func (c cost) per(n int) figures {
	each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(n) }
	return figures{
		redisCPU: each(c.redisCPU), clientCPU: each(c.clientCPU),
		commands: c.commands / float64(n), trips: c.trips / float64(n), allocs: c.allocs / float64(n),
	}
}

func (m *meter) read(ctx context.Context) (reading, error) {
	info, err := m.info(ctx, "cpu", "commandstats")
	if err != nil {
		return reading{}, err
	}
	// The main thread carries out the commands; what other threads do (closing files,
	// fsync, freeing) is not counted.
	var r reading
	for _, field := range []string{"used_cpu_sys_main_thread", "used_cpu_user_main_thread"} {
		seconds, err := strconv.ParseFloat(info[field], 64)
		if err != nil {
			return reading{}, fmt.Errorf("INFO cpu: %s: %w", field, err)
		}
		r.redisCPU += time.Duration(seconds * float64(time.Second))
	}
	for name, value := range info {
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok || housekeeping(command) {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return reading{}, fmt.Errorf("INFO commandstats: %s: %w", name, err)
		}
		r.commands += n
	}
	if r.clientCPU, err = ownCPU(); err != nil {
		return reading{}, err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	r.mallocs, r.trips, r.at = mem.Mallocs, m.net.trips.Load(), time.Now()
	return r, nil
}

// ownCPU is what this process has used.
func ownCPU() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// housekeeping are commands of the meter, and of connections being made.
func housekeeping(command string) bool {
	name, _, _ := strings.Cut(command, "|")
	switch name {
	case "info", "config", "hello", "client", "slowlog", "latency", "ping", "command", "keys", "type":
		return true
	}
	return false
}

// info reads sections of INFO.
func (m *meter) info(ctx context.Context, sections ...string) (map[string]string, error) {
	fields := map[string]string{}
	for _, section := range sections {
		text, err := m.cli.Info(ctx, section).Result()
		if err != nil {
			return nil, fmt.Errorf("INFO %s: %w", section, err)
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				fields[name] = value
			}
		}
	}
	return fields, nil
}

// figures reads fields of INFO.
func (m *meter) figures(ctx context.Context, names ...string) ([]float64, error) {
	info, err := m.info(ctx, "memory", "stats", "persistence")
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
