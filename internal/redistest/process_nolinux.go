//go:build !linux

package redistest

import (
	"syscall"
)

// childAttr has nothing to ask for: only Linux ends a child with its parent.
func childAttr() *syscall.SysProcAttr { return nil }

// standsStill cannot be told here without a tool of the system's own.
func standsStill(int) bool { return true }
