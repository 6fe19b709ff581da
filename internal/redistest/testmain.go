package redistest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// Main starts the server that all tests of a package share, runs them, 8 at a time because they wait most of the
// time, and returns the exit code. If they fail, what the server said is shown with the rest: see Quietly.
func Main(m *testing.M, shared **Server) int {
	return Quietly(func() int {
		server, err := Run()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Close()
		defer BesideClock(server)()
		flag.Parse()
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
		*shared = server
		code := m.Run()
		if code != 0 {
			log.Print("output of the shared redis-server:\n" + server.Output())
		}
		return code
	})
}

// BesideClock makes a PING of a server a part of each tick of the tests' clock, until end.
func BesideClock(s *Server) (end func()) {
	cli := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1, ReadTimeout: startLimit})
	testkit.Beside(func() { _ = cli.Ping(context.Background()).Err() })
	return func() {
		testkit.Beside(nil)
		_ = cli.Close() // a PING that is under way fails
	}
}

// Quietly runs tests, and returns their exit code. What go-redis and package log say meanwhile, slog's default logger
// included, goes to a file. If the tests fail, the end of that file is printed with its path; a binary that panics
// leaves it in the folder for temporary files.
func Quietly(tests func() int) int { return quietly(os.Stderr, tests) }

func quietly(stderr io.Writer, tests func() int) int {
	file, err := os.CreateTemp("", filepath.Base(os.Args[0])+"-*.log")
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	defer file.Close()
	defer log.SetOutput(log.Writer())
	log.SetOutput(file)
	redis.SetLogger(chatter{})
	code := tests()
	if code == 0 {
		_ = os.Remove(file.Name())
		return 0
	}
	if text, err := os.ReadFile(file.Name()); err != nil {
		fmt.Fprintln(stderr, err)
	} else if len(text) > 0 {
		fmt.Fprintf(stderr, "%s ends so:\n%s\n", file.Name(), tail(string(text), tailLines))
	}
	return code
}

// chatter is a logger of go-redis that writes where package log does.
type chatter struct{}

func (chatter) Printf(_ context.Context, format string, args ...any) {
	log.Printf("redis: "+format, args...)
}
