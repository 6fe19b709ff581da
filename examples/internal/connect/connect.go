// Package connect gives every example a Redis: the one that REDIS_ADDR names, or an
// embedded server when it is not set.
package connect

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// patience is how long the Redis of REDIS_ADDR may take to answer.
const patience = 3 * time.Second

// quiet turns off the client's own log, which has a line for every failed dial: the queue
// says once that an outage began and once that it is over.
var quiet = sync.OnceFunc(logging.Disable)

// A Redis is what an example talks to.
type Redis struct {
	Client   *redis.Client
	About    string // for the first line of output
	Embedded bool   // it ends with this program
	Close    func()
}

// Open connects to the Redis that REDIS_ADDR names, as host:port or redis://… URL, or
// starts an embedded server. Its error is a sentence for the user.
func Open() (*Redis, error) {
	quiet()
	addr := strings.TrimSpace(os.Getenv("REDIS_ADDR"))
	if addr == "" {
		server, err := miniredis.Run()
		if err != nil {
			return nil, fmt.Errorf("cannot start the embedded Redis: %w", err)
		}
		cli := redis.NewClient(&redis.Options{Addr: server.Addr()})
		return &Redis{
			Client: cli, Embedded: true,
			About: "redis: embedded, it lives only as long as this program (REDIS_ADDR=host:port uses yours)",
			Close: func() { _ = cli.Close(); server.Close() },
		}, nil
	}

	options := &redis.Options{Addr: addr}
	if strings.Contains(addr, "://") {
		var err error
		if options, err = redis.ParseURL(addr); err != nil {
			return nil, fmt.Errorf("REDIS_ADDR is not an address that can be used: %w", err)
		}
	} else if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, fmt.Errorf(
			"REDIS_ADDR=%s is not an address that can be used: write host:port, for example 127.0.0.1:6379", addr)
	}
	cli := redis.NewClient(options)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := cli.Ping(ctx).Err(); err != nil {
		_ = cli.Close()
		return nil, fmt.Errorf("the Redis at %s (REDIS_ADDR) does not answer: %w", options.Addr, err)
	}
	return &Redis{
		Client: cli,
		About:  fmt.Sprintf("redis: %s (REDIS_ADDR)", options.Addr),
		Close:  func() { _ = cli.Close() },
	}, nil
}
