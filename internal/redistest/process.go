package redistest

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	stopGrace  = 5 * time.Second        // from SIGTERM to SIGKILL
	pauseWait  = time.Minute            // for SIGSTOP to take effect
	pollPeriod = 5 * time.Millisecond   // between two looks at something
	probeWait  = 500 * time.Millisecond // for the answer to a probe
)

// Process is one child process, from its start to its end. A Server has one; a test may
// have others of its own. All methods are safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended and was waited for
}

// StartProcess starts a child, in directory dir, that writes all it says to out. On Linux it
// ends with this process, however that ends.
//
// The kernel ties the child's death signal to the thread that started it, not
// to the process, so the starting goroutine keeps its thread until the child
// has ended.
func StartProcess(path string, args []string, dir string, out *os.File) (*Process, error) {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = childAttr()
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is told by its output
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Pid returns the child's process id, also after its end.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Ended tells whether the child has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Terminate asks the child to end, by SIGTERM.
func (p *Process) Terminate() { p.signal(syscall.SIGTERM) }

// signal sends sig; a child that has ended is left alone.
func (p *Process) signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) }

// Stop ends the child with SIGTERM, or with SIGKILL if that takes longer than
// stopGrace, and waits for its end. A paused child is woken for it.
func (p *Process) Stop() {
	p.Terminate()
	p.signal(syscall.SIGCONT)
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-p.done:
	case <-grace.C:
		p.Kill()
	}
}

// Kill ends the child with SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.signal(os.Kill)
	<-p.done
}

// Pause stops the child with SIGSTOP and returns once it stands still.
func (p *Process) Pause() {
	p.signal(syscall.SIGSTOP)
	until(pauseWait, func() bool { return p.Ended() || standsStill(p.Pid()) })
}

// Resume lets a paused child go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// until looks at cond every few milliseconds, until it holds or limit has
// passed, and tells whether it held.
func until(limit time.Duration, cond func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return cond()
		}
	}
	return true
}
