package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/exec"
	"sync"
	"time"
)

// keep has replicas running, each a process of its own, until ctx ends.
func keep(ctx context.Context, set *settings, redisAddr string, out, errs io.Writer) {
	say := log.New(out, "", log.Ltime|log.Lmicroseconds)
	var all sync.WaitGroup
	for n := 1; n <= replicas; n++ {
		all.Go(func() {
			for ctx.Err() == nil {
				cmd, err := start(ctx, set, redisAddr, out, errs)
				if err == nil {
					say.Printf("replica %d is process %d: kill -9 %[2]d", n, cmd.Process.Pid)
					err = cmd.Wait()
				}
				if ctx.Err() != nil {
					return
				}
				say.Printf("replica %d has ended (%v); it is started again in %v", n, err, set.restart)
				select {
				case <-time.After(set.restart):
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
}

// start starts a replica. It ends when its standard input does, so it does not outlive this process, however that ends.
func start(ctx context.Context, set *settings, redisAddr string, out, errs io.Writer) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-"+childFlag, "-every", set.every.String())
	cmd.Env = append(os.Environ(), "REDIS_ADDR="+redisAddr)
	cmd.Stdout, cmd.Stderr = out, errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, 2*patience
	return cmd, cmd.Start()
}
