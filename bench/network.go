package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A network makes clients of one server and counts the round trips of all of them. The
// count is taken on the connections, so it holds whatever a system does with its client:
// pipelines, connections of its own, commands that its own code never sees.
type network struct {
	addr  string
	trips atomic.Int64

	watch   bool         // whether clients made from now on count the library's fetches
	fetches atomic.Int64 // how many there were
}

// client makes a client with go-redis's defaults.
func (n *network) client() *redis.Client {
	cli := redis.NewClient(&redis.Options{Addr: n.addr, Dialer: n.dial})
	if n.watch {
		cli.AddHook(fetchCounter{&n.fetches})
	}
	return cli
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countingConn{TCPConn: conn.(*net.TCPConn), trips: &n.trips}, nil
}

// countingConn counts a round trip whenever the client writes after it has read: however
// many writes a pipeline takes, it is one.
type countingConn struct {
	*net.TCPConn
	trips   *atomic.Int64
	writing atomic.Bool
}

func (c *countingConn) Write(b []byte) (int, error) {
	if !c.writing.Swap(true) {
		c.trips.Add(1)
	}
	return c.TCPConn.Write(b)
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 {
		c.writing.Store(false)
	}
	return n, err
}

// fetchCounter is a client's hook that counts calls of the library's fetch: of its scripts
// the only one with twelve keys of which the first is pending that is called here.
type fetchCounter struct{ n *atomic.Int64 }

func (fetchCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f fetchCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isFetch(cmd.Args()) {
			f.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (fetchCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func isFetch(args []any) bool {
	return len(args) > 3 && (args[0] == "evalsha" || args[0] == "eval") && fmt.Sprint(args[2]) == "12" &&
		strings.HasSuffix(fmt.Sprint(args[3]), ":pending")
}
