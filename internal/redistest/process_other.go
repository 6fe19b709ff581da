//go:build !unix

package redistest

import "syscall"

// There is no redis-server here and there are no such signals; this file lets
// the package compile.
const (
	sigPause  = syscall.SIGTERM
	sigResume = syscall.SIGTERM
)
