//go:build linux

package redistest

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// childAttr makes the kernel kill the child when the thread that started it
// ends, hence also when the test binary is killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// standsStill tells whether SIGSTOP has taken effect on a process: a signal to
// another process arrives a moment after kill(2) has returned.
func standsStill(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true // no /proc here: nothing to wait for
	}
	// "pid (command) state ...", and the command may hold spaces and brackets.
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return len(state) > 0 && (state[0] == 'T' || state[0] == 't')
}
