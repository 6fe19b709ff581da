package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// floorBatch is how many messages the floor's consumer moves at a time.
const floorBatch = 500

// floorIdle is how long the floor's consumer waits when nothing is due.
const floorIdle = time.Millisecond

// floor is what no queue on these structures can do without: the library's own sorted sets
// and hash, moved by variadic commands, pipelined. There is no script, no option, no lease
// that anybody looks at, no check of any answer: a message is lost or handled twice as soon
// as something goes wrong.
//
// One loop consumes, and calls the handler itself: two would hand out the same messages.
type floor struct {
	net                 *network
	cli                 *redis.Client
	pending, unack, msg string
	mu                  sync.Mutex
	random              *bufio.Reader
}

func openFloor(net *network) system {
	return &floor{
		net: net, cli: net.client(),
		pending: "{floor}:pending", unack: "{floor}:unack", msg: "{floor}:msg",
		random: bufio.NewReader(rand.Reader),
	}
}

func (f *floor) send(ctx context.Context, m message) error {
	return f.sendBatch(ctx, []message{m})
}

func (f *floor) sendBatch(ctx context.Context, batch []message) error {
	adds, sets := make([]redis.Z, len(batch)), make([]any, 0, 2*len(batch))
	now := time.Now()
	f.mu.Lock()
	for i, m := range batch {
		id := uuid.Must(uuid.NewV7FromReader(f.random)).String()
		at := m.at
		if at.IsZero() {
			at = now.Add(m.delay)
		}
		due := at.UnixMicro()
		adds[i] = redis.Z{Score: float64(due), Member: id}
		sets = append(sets, id, floorEnvelope(due, m.payload))
	}
	f.mu.Unlock()
	pipe := f.cli.Pipeline()
	pipe.ZAdd(ctx, f.pending, adds...)
	pipe.HSet(ctx, f.msg, sets...)
	_, err := pipe.Exec(ctx)
	return err
}

// floorHead is as long as what the library keeps in front of a payload.
const floorHead = 1 + 16 + 4

func floorEnvelope(due int64, payload string) string {
	b := make([]byte, 0, floorHead+len(payload))
	b = append(b, 1)
	b = strconv.AppendInt(b, due, 10)
	b = append(b, 0, 0, 0, 3)
	return string(append(b, payload...))
}

func (f *floor) consume(_ int, handle handler) (func(), error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- f.drain(ctx, handle) }()
	return func() {
		cancel()
		if err := <-result; err != nil {
			panic(fmt.Sprintf("floor: %v", err)) // its own server has gone: nothing to measure
		}
	}, nil
}

// drain moves one batch a round trip: the acknowledgements of the last, the taking of
// this, and the look at the next go out together.
func (f *floor) drain(stop context.Context, handle handler) error {
	cli := f.net.client()
	defer cli.Close()
	ctx := context.Background()
	var taken, found []string // handled; due
	for {
		if stop.Err() != nil {
			found = nil // stays where it is
		}
		pipe := cli.Pipeline()
		if len(taken) > 0 {
			pipe.ZRem(ctx, f.unack, anys(taken)...)
			pipe.HDel(ctx, f.msg, taken...)
		}
		var envelopes *redis.SliceCmd
		if len(found) > 0 {
			lease := float64(time.Now().Add(10 * time.Second).UnixMicro())
			adds := make([]redis.Z, len(found))
			for i, id := range found {
				adds[i] = redis.Z{Score: lease, Member: id}
			}
			envelopes = pipe.HMGet(ctx, f.msg, found...)
			pipe.ZRem(ctx, f.pending, anys(found)...)
			pipe.ZAdd(ctx, f.unack, adds...)
		}
		next := pipe.ZRangeByScore(ctx, f.pending, &redis.ZRangeBy{
			Min: "-inf", Max: strconv.FormatInt(time.Now().UnixMicro(), 10), Count: floorBatch,
		})
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		if envelopes != nil {
			for _, v := range envelopes.Val() {
				handle(v.(string)[floorHead:], 0)
			}
		}
		taken, found = found, next.Val()
		if len(taken)+len(found) > 0 {
			continue
		}
		if stop.Err() != nil {
			return nil
		}
		select {
		case <-stop.Done():
		case <-time.After(floorIdle):
		}
	}
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

func (f *floor) left(ctx context.Context) (int64, error) { return f.cli.HLen(ctx, f.msg).Result() }

func (f *floor) close() { _ = f.cli.Close() }
