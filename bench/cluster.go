package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// onCluster runs a Cluster of so many primaries while do runs.
func onCluster(primaries int, do func(addrs []string) error) error {
	h := &clusterHost{}
	over := make(chan error, 1)
	go func() { // Fatal ends this goroutine, as it does a test's
		err := errors.New("the cluster did not start")
		defer func() {
			for _, f := range slices.Backward(h.cleanups) {
				f()
			}
			over <- errors.Join(h.failure, err)
		}()
		c := redistest.StartCluster(h, primaries, 0)
		err = do(c.Addrs())
	}()
	return <-over
}

// A clusterHost is a test to redistest: it embeds none, and has the methods that are called there.
type clusterHost struct {
	testing.TB
	failure  error
	cleanups []func()
}

func (h *clusterHost) Helper()             {}
func (h *clusterHost) Failed() bool        { return false }
func (h *clusterHost) Logf(string, ...any) {}
func (h *clusterHost) Cleanup(f func())    { h.cleanups = append(h.cleanups, f) }

func (h *clusterHost) Fatal(args ...any) {
	h.failure = errors.New(fmt.Sprint(args...))
	runtime.Goexit()
}

func (h *clusterHost) Fatalf(format string, args ...any) { h.Fatal(fmt.Sprintf(format, args...)) }
