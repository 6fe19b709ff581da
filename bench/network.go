package main

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// A network makes clients of one server and counts the round trips of all of them. The
// count is taken on the connections, so it holds whatever a system does with its client:
// pipelines, connections of its own, commands that its own code never sees.
type network struct {
	addr  string
	trips atomic.Int64

	fetches atomic.Int64 // calls of the library's fetch, of all connections
}

// client makes a client with go-redis's defaults.
func (n *network) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: n.addr, Dialer: n.dial})
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countingConn{TCPConn: conn.(*net.TCPConn), net: n}, nil
}

// countingConn counts a round trip whenever the client writes after it has read: however
// many writes a pipeline takes, it is one.
type countingConn struct {
	*net.TCPConn
	net     *network
	writing atomic.Bool
}

// fetchWords are in each call of the library's fetch.
var fetchWords = []byte(script.FetchScript.SHA)

func (c *countingConn) Write(b []byte) (int, error) {
	if !c.writing.Swap(true) {
		c.net.trips.Add(1)
	}
	if bytes.Contains(b[:min(len(b), 128)], fetchWords) { // a call begins a write
		c.net.fetches.Add(1)
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
