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
	pauseWait  = 5 * time.Second        // for SIGSTOP to take effect
	pollPeriod = 5 * time.Millisecond   // between two looks at something
	probeWait  = 500 * time.Millisecond // for the answer to a probe
)

// process is one child process, from its start to its end.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended and was waited for
}

// startProcess starts a child that writes all it says to out.
//
// The kernel ties the child's death signal to the thread that started it, not
// to the process, so the starting goroutine keeps its thread until the child
// has ended.
func startProcess(path string, args []string, dir string, out *os.File) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = childAttr()
	p := &process{cmd: cmd, done: make(chan struct{})}
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

// pid returns the child's process id, also after its end.
func (p *process) pid() int { return p.cmd.Process.Pid }

// ended tells whether the child has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends sig; a child that has ended is left alone.
func (p *process) signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) }

// stop ends the child with SIGTERM, or with SIGKILL if that takes longer than
// stopGrace, and waits for its end. A paused child is woken for it.
func (p *process) stop() {
	p.signal(syscall.SIGTERM)
	p.signal(sigResume)
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-p.done:
	case <-grace.C:
		p.kill()
	}
}

// kill ends the child with SIGKILL and waits for its end.
func (p *process) kill() {
	p.signal(os.Kill)
	<-p.done
}

// pause stops the child with SIGSTOP and returns once it stands still.
func (p *process) pause() {
	p.signal(sigPause)
	until(pauseWait, func() bool { return p.ended() || standsStill(p.pid()) })
}

// resume lets a paused child go on.
func (p *process) resume() { p.signal(sigResume) }

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
