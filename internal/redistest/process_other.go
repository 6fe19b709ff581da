//go:build !unix

package redistest

import (
	"syscall"
	"time"
)

// There is no redis-server here and there are no such signals; this file lets
// the package compile.
const (
	sigPause  = syscall.SIGTERM
	sigResume = syscall.SIGTERM
)

func childAttr() *syscall.SysProcAttr { return nil }

func standsStill(int) bool { return true }

// busy cannot be told here without a tool of the system's own.
func busy(int) time.Duration { return passed() }
