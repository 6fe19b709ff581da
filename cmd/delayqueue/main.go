// Command delayqueue looks at the queues of delayqueue and steers them.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() { os.Exit(run()) }

func run() int {
	logging.Disable() // the client would log every failed dial
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup it goes on
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	a := newApp()
	defer a.close()
	command, err := a.root().ExecuteContextC(ctx)
	a.command = command
	if err = cmp.Or(err, unsaid); err == nil {
		return exitDone
	}
	code, text := a.explain(err)
	if text != "" {
		fmt.Fprintln(os.Stderr, "delayqueue: "+printable(text))
	}
	return code
}
