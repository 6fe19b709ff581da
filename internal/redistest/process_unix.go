//go:build unix && !linux

package redistest

import (
	"syscall"
	"time"
)

const (
	sigPause  = syscall.SIGSTOP
	sigResume = syscall.SIGCONT
)

// childAttr has nothing to ask for: only Linux ends a child with its parent.
func childAttr() *syscall.SysProcAttr { return nil }

// standsStill cannot be told here without a tool of the system's own.
func standsStill(int) bool { return true }

// busy cannot be told here without a tool of the system's own.
func busy(int) time.Duration { return passed() }
