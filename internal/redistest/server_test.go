package redistest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

func TestStartServesAndIsOnItsOwn(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	a, b := Start(t), Start(t)
	testkit.Must(t, a.Client(t).Set(ctx, "k", "v", 0).Err())
	if n, err := b.Client(t).Exists(ctx, "k").Result(); err != nil || n != 0 {
		t.Fatalf("the other server has the key: %d, %v", n, err)
	}
	if a.Pid() == 0 || a.Pid() == b.Pid() {
		t.Fatalf("pids %d and %d", a.Pid(), b.Pid())
	}
	if !strings.Contains(a.Output(), "Ready to accept connections") {
		t.Fatalf("output: %s", a.Output())
	}
	if version, err := Version(ctx); err != nil || !strings.Contains(a.Output(), strings.Fields(version)[1]) {
		t.Errorf("version %q, %v; output: %s", version, err, a.Output())
	}
}

func TestStopKillRestart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Server){
		"Stop":              (*Server).Stop,
		"Kill":              (*Server).Kill,
		"Stop while paused": func(s *Server) { s.Pause(); s.Stop() },
		"Kill while paused": func(s *Server) { s.Pause(); s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testCtx(t)
			s := Start(t, "--appendonly", "yes")
			cli := s.Client(t)
			testkit.Must(t, cli.Set(ctx, "k", "v", 0).Err())
			addr, pid := s.Addr(), s.Pid()
			end(s)
			end(s) // what has ended is left alone
			if s.Pid() != 0 {
				t.Fatalf("pid %d after the end", s.Pid())
			}
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Fatal("somebody listens after the end")
			}
			s.Restart(t)
			if s.Addr() != addr || s.Pid() == pid || s.Pid() == 0 {
				t.Fatalf("restarted at %s, pid %d; was at %s, pid %d", s.Addr(), s.Pid(), addr, pid)
			}
			if v, err := cli.Get(ctx, "k").Result(); v != "v" {
				t.Fatalf("after the restart: %q, %v", v, err)
			}
			if n := strings.Count(s.Output(), "Ready to accept connections"); n != 2 {
				t.Fatalf("output tells of %d starts, want 2:\n%s", n, s.Output())
			}
		})
	}
}

func TestRestartWaitsForThePort(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Stop()
	ln, err := net.Listen("tcp", s.Addr())
	testkit.Must(t, err)
	restarted := make(chan error, 1)
	go func() { restarted <- s.restart() }()
	// The port's holder goes once a server has failed on it.
	if !until(startLimit, func() bool {
		data, err := os.ReadFile(s.logFile())
		return err == nil && strings.Contains(string(data), "in use")
	}) {
		t.Error("no server tried the port")
	}
	ln.Close()
	testkit.Must(t, <-restarted)
	testkit.Must(t, s.Client(t).Ping(testCtx(t)).Err())
}

func TestRestartTakesNoStrangerForItsOwn(t *testing.T) {
	t.Parallel()
	a, b := Start(t), Start(t)
	a.Stop()
	a.mu.Lock()
	a.port = b.port
	err := a.launch(time.Now().Add(startLimit))
	a.mu.Unlock()
	if !errors.Is(err, errPortTaken) {
		t.Fatalf("error %v, want %v", err, errPortTaken)
	}
}

func TestPauseResume(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s := Start(t)
	cli := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: time.Second, MaxRetries: -1})
	defer cli.Close()
	testkit.Until(t, "it answers in time", func() bool { return cli.Ping(ctx).Err() == nil })
	s.Pause()
	var timeout net.Error
	if err := cli.Ping(ctx).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("a paused server answered: %v", err)
	}
	s.Resume()
	testkit.Must(t, s.Client(t).Ping(ctx).Err())
}

func TestRunCloses(t *testing.T) {
	t.Parallel()
	s, err := Run()
	testkit.Must(t, err)
	s.Close()
	s.Close()
	if s.Pid() != 0 {
		t.Error("still runs")
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory is left: %v", err)
	}
	if !strings.Contains(s.Output(), "Ready to accept connections") {
		t.Errorf("output is lost: %q", s.Output())
	}
	if s.restart() == nil {
		t.Error("a closed server restarted")
	}
}

func TestRunTellsWhyItFailed(t *testing.T) {
	t.Parallel()
	_, err := Run("--no-such-option", "1")
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Fatalf("error %v", err)
	}
}

func TestNoServerInPath(t *testing.T) {
	t.Setenv(ServerEnv, "")
	t.Setenv("PATH", t.TempDir())
	_, err := Run()
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "make test") {
		t.Fatalf("error %v", err)
	}
}

func TestFailureShowsOutput(t *testing.T) {
	t.Parallel()
	fake := &fakeTB{TB: t, failed: true}
	Start(fake).Client(fake)
	fake.end()
	if !strings.Contains(fake.log, "Ready to accept connections") {
		t.Fatalf("log: %q", fake.log)
	}
}
