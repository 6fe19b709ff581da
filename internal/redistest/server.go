package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

const (
	startLimit = 5 * time.Minute // for a server to start and answer
	tailLines  = 60              // of the output in a failure
)

// errPortTaken says that somebody else listens on the port.
var errPortTaken = errors.New("redistest: port is taken")

// Server is a redis-server process of its own on a loopback port, with a
// directory of its own, and no persistence unless its arguments ask for it.
// It keeps port, directory and arguments over Stop, Kill and Restart. All
// methods are safe for concurrent use; those that start or stop the server
// take turns, and Pid waits for them.
type Server struct {
	path string   // of the executable
	args []string // the caller's own
	conf string   // what a sentinel's configuration file holds at first; "": not a sentinel
	dir  string
	port int

	mu     sync.Mutex // guards the rest and is held while the server starts or stops
	proc   *Process   // the newest process, ended or not; nil before the first
	closed bool
	final  string // the output, once closed
}

// Start runs a redis-server for one test and returns when it answers. At the
// end of the test the server is stopped, its directory removed, and if the
// test failed the end of its output is logged.
//
// args are appended to the command line, as in Start(t, "--appendonly", "yes");
// where they name what the defaults set (save, appendonly, loglevel) they win.
// port, bind and dir are not for them. With appendonly the server keeps its
// data over Restart, over Kill too; by default it comes back empty.
//
// The test fails at once if there is no redis-server, or if it has not
// answered after 5 minutes.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, &Server{args: args})
}

// start is run for one test.
func start(t testing.TB, s *Server) *Server {
	t.Helper()
	s, err := run(s)
	testkit.Must(t, err)
	t.Cleanup(func() {
		s.Close()
		s.logIfFailed(t)
	})
	return s
}

// Run is Start for a TestMain, which has no testing.TB: the caller must Close
// the server, before os.Exit, and sees its output by Output.
func Run(args ...string) (*Server, error) { return run(&Server{args: args}) }

// run starts a server that is made up but for its path, directory and port.
func run(s *Server) (*Server, error) {
	path, err := executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s.path, s.dir = path, dir
	if s.conf != "" {
		err = os.WriteFile(s.confFile(), []byte(s.conf), 0o600)
	}
	if err == nil {
		err = s.startAnywhere()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the server as Stop does and removes its directory. It cannot be
// restarted then; Output still works. Calls after the first do nothing.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.proc != nil {
		s.proc.Stop()
	}
	s.final = s.readOutput(0)
	ReleasePort(s.port)
	_ = os.RemoveAll(s.dir) // what is left behind harms nobody
}

// Addr returns host:port, the same for the server's whole life.
func (s *Server) Addr() string { return loopback(s.port) }

func addrsOf(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Client returns a new client of the server, with go-redis's defaults. It is
// closed at the end of the test.
func (s *Server) Client(t testing.TB) *redis.Client {
	cli := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// Stop ends the server in good order: SIGTERM, and SIGKILL if it has not ended
// after 5 seconds. It returns when the process is gone. A paused server is
// resumed for it; one that has ended is left alone.
func (s *Server) Stop() { s.onProcess((*Process).Stop) }

// Kill ends the server by SIGKILL, as a crash does, paused or not. It returns
// when the process is gone; one that has ended is left alone.
func (s *Server) Kill() { s.onProcess((*Process).Kill) }

// Restart starts the server again, on its old port and directory and with its
// old arguments, and returns when it answers. One that still runs is stopped
// first, as by Stop. While the port is in use it tries again. The test fails
// if the server has not answered after 5 minutes.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	testkit.Must(t, s.restart())
}

// Pause freezes the server by SIGSTOP: connections stay open and are even
// accepted, by the kernel, but nothing is answered until Resume. It returns
// when the process stands still (on systems other than Linux, when the signal
// was sent).
func (s *Server) Pause() { s.onProcess((*Process).Pause) }

// Resume lets a paused server go on, by SIGCONT.
func (s *Server) Resume() { s.onProcess((*Process).Resume) }

// onProcess calls do with the newest process, if there is one.
func (s *Server) onProcess(do func(*Process)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		do(s.proc)
	}
}

// Pid returns the process id, 0 if the server does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.Ended() {
		return 0
	}
	return s.proc.Pid()
}

// Output returns what the server has logged so far, over all its restarts.
func (s *Server) Output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.final
	}
	return s.readOutput(0)
}

// logIfFailed logs the end of the output if the test has failed.
func (s *Server) logIfFailed(t testing.TB) {
	if t.Failed() {
		t.Logf("redis-server at %s:\n%s", s.Addr(), tail(s.Output(), tailLines))
	}
}

// startAnywhere starts a new server on a port that is free.
func (s *Server) startAnywhere() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := time.Now().Add(startLimit)
	for {
		port, err := ReservePort()
		if err != nil {
			return err
		}
		s.port = port
		err = s.launch(deadline)
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			return err
		}
		ReleasePort(port)
	}
}

// restart is Restart without a test.
func (s *Server) restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("redistest: a closed server cannot be restarted")
	}
	if s.proc != nil {
		s.proc.Stop()
	}
	deadline := time.Now().Add(startLimit)
	var err error
	until(startLimit, func() bool {
		err = s.launch(deadline)
		return !errors.Is(err, errPortTaken)
	})
	return err
}

// launch starts a process on s.port and waits until it answers. If it cannot
// listen there the error is errPortTaken. After an error nothing runs.
func (s *Server) launch(deadline time.Time) error {
	out, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer out.Close() // the child has its own
	size, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	p, err := StartProcess(s.path, s.commandLine(), s.dir, out)
	if err != nil {
		return fmt.Errorf("redistest: start %s: %w", s.path, err)
	}
	s.proc = p
	var who answerer
	until(time.Until(deadline), func() bool {
		who = probe(s.Addr(), p.Pid())
		return who != nobody || p.Ended()
	})
	switch {
	case who == ours:
		return nil
	case who == stranger:
		p.Kill()
		return errPortTaken
	case !p.Ended():
		p.Kill()
		return fmt.Errorf("redistest: %s did not answer PING in time:\n%s", s.path, tail(s.readOutput(size), tailLines))
	}
	output := s.readOutput(size)
	if strings.Contains(output, "in use") || strings.Contains(output, "Failed listening on port") {
		return errPortTaken
	}
	return fmt.Errorf("redistest: %s %s ended at once:\n%s", s.path, strings.Join(s.args, " "), tail(output, tailLines))
}

// commandLine returns redis-server's arguments, the caller's last.
func (s *Server) commandLine() []string {
	if s.conf != "" {
		return []string{s.confFile(), "--sentinel", "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir}
	}
	return append([]string{
		"--save", "", "--appendonly", "no", "--loglevel", "notice", "--daemonize", "no",
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
	}, s.args...)
}

func (s *Server) confFile() string { return filepath.Join(s.dir, "sentinel.conf") }

func (s *Server) logFile() string { return filepath.Join(s.dir, "redistest.log") }

// readOutput returns the output from byte from on.
func (s *Server) readOutput(from int64) string {
	data, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(data[min(from, int64(len(data))):])
}

// answerer is who answers on a port.
type answerer int

const (
	nobody   answerer = iota // or a server that still loads its data
	ours                     // the process that was meant
	stranger                 // another server, which has the port
)

// probe asks who serves addr; the answer is ours if that is process pid. A
// server that wants a password before it tells is taken for ours.
func probe(addr string, pid int) answerer {
	conn, err := net.DialTimeout("tcp", addr, probeWait)
	if err != nil {
		return nobody
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(probeWait))
	if _, err := conn.Write([]byte("PING\r\nINFO server\r\n")); err != nil {
		return nobody
	}
	r := newFrameReader(conn)
	pong, _, err := r.readReply(nil)
	if err != nil || bytes.HasPrefix(pong, []byte("-LOADING")) {
		return nobody
	}
	info, _, err := r.readReply(nil)
	if err != nil {
		return nobody
	}
	_, id, told := bytes.Cut(info, []byte("\r\nprocess_id:"))
	if told && !bytes.HasPrefix(id, []byte(strconv.Itoa(pid)+"\r\n")) {
		return stranger
	}
	return ours
}

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
