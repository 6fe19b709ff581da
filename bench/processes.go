package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// senderEnv makes this program a sender: the system, the server's address and how many messages.
const senderEnv = "BENCH_SENDER"

// A child is this program again, as another process.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// sendApart measures single sends, due in an hour, by so many processes of one goroutine each, with a client each.
// The client's CPU is theirs; allocations and round trips are not counted.
func sendApart(processes, others, asynq int) func(t *trial) error {
	return func(t *trial) error {
		each := t.size(others, asynq) / processes
		var all []*child
		defer func() {
			for _, s := range all {
				s.end()
			}
		}()
		for range processes {
			s, err := startChild(senderEnv, fmt.Sprintf("%s %s %d", t.system, t.net.addr, each))
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		for _, s := range all { // it is connected, and has its scripts
			if _, err := s.line(); err != nil {
				return err
			}
		}
		if err := t.meter.start(t.ctx); err != nil {
			return err
		}
		for _, s := range all {
			if _, err := fmt.Fprintln(s.stdin); err != nil {
				return fmt.Errorf("sender: %w", err)
			}
		}
		var theirs time.Duration
		for _, s := range all {
			us, err := s.line()
			if err != nil {
				return err
			}
			n, err := strconv.ParseInt(us, 10, 64)
			if err != nil {
				return fmt.Errorf("sender: %w", err)
			}
			theirs += time.Duration(n) * time.Microsecond
		}
		c, err := t.meter.stop(t.ctx)
		if err != nil {
			return err
		}
		c.clientCPU = theirs
		n := each * processes
		f := c.per(n)
		delete(f, allocs)
		delete(f, trips)
		f[rate] = float64(n) / c.wall.Seconds()
		t.report(t.what.name, t.what.kind, f)
		return nil
	}
}

// startChild starts this program with a variable of the environment, which says what it is to be.
func startChild(name, value string) (*child, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), name+"="+value)
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &child{cmd, stdin, bufio.NewScanner(stdout)}, nil
}

func (s *child) line() (string, error) {
	if !s.lines.Scan() {
		return "", errors.New("a child ended early")
	}
	return s.lines.Text(), nil
}

func (s *child) end() {
	_ = s.stdin.Close() // that is its sign to end
	_ = s.cmd.Wait()    // what it had to say it has said
}

// beSender sends when it is told to, and prints how much CPU that took, in us.
func beSender(text string) error {
	var name, addr string
	var n int
	if _, err := fmt.Sscan(text, &name, &addr, &n); err != nil {
		return fmt.Errorf("%s=%q: %w", senderEnv, text, err)
	}
	sys := openers[name](&network{addr: addr})
	defer sys.close()
	ctx := context.Background()
	for i := range 20 {
		if err := sys.send(ctx, hourly(payload(i))); err != nil {
			return err
		}
	}
	texts := payloads(n)
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return nil // nobody wants it any more
	}
	before, err := ownCPU()
	if err != nil {
		return err
	}
	for _, text := range texts {
		if err := sys.send(ctx, hourly(text)); err != nil {
			return err
		}
	}
	after, err := ownCPU()
	fmt.Println((after - before).Microseconds())
	return err
}

func ownCPU() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
