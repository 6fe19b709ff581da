package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-delayqueue/delayqueue"
)

// Exit codes, as the help of the root command says.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNoRedis     = 3
	exitNotFound    = 4
	exitRefused     = 5
	exitUnconfirmed = 6
	exitUnsound     = 7
	exitInterrupted = 130
)

const exitHelp = `Exit codes:
  0    done
  1    failed, for a reason that none of the others is
  2    the command line is wrong
  3    Redis cannot be reached, or its address is wrong
  4    there is no such queue, message or key
  5    refused: a message is in the wrong state, its key is taken, its number was reached, consumers are alive, a plan is over, or a newer version writes the queue
  6    not confirmed: the answer was no, or there was nobody to ask and no --yes
  7    doctor found something wrong
  130  interrupted; what can be continued says how`

// A failure is an error with an exit code of its own. Its text may be empty if all was said.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// explain is the exit code of an error and what to print.
func (a *app) explain(err error) (code int, text string) {
	text = strings.ReplaceAll(err.Error(), "delayqueue: ", "") // it is printed in front
	var known *failure
	var netErr net.Error
	var file *fs.PathError // whose cause is a net.Error, like every number of the system
	switch {
	case errors.As(err, &known):
		return known.code, text
	case a.started && errors.As(err, &file):
		return exitFailed, text
	case !a.started:
		return exitUsage, text + "\n" + a.usage()
	case errors.Is(err, context.Canceled):
		return exitInterrupted, "interrupted"
	case errors.Is(err, delayqueue.ErrBulkStopped):
		return exitInterrupted, text
	case errors.Is(err, delayqueue.ErrWrongState), errors.Is(err, delayqueue.ErrDuplicateKey), errors.Is(err, delayqueue.ErrSequence),
		errors.Is(err, delayqueue.ErrConsumersAlive),
		errors.Is(err, delayqueue.ErrUnknownLayout), errors.Is(err, delayqueue.ErrPlanOver):
		return exitRefused, text
	case errors.Is(err, delayqueue.ErrNotFound):
		return exitNotFound, text
	case errors.Is(err, delayqueue.ErrBadOption), errors.Is(err, delayqueue.ErrBadCursor), errors.Is(err, delayqueue.ErrPayloadTooLarge):
		return exitUsage, text
	case strings.Contains(text, "CLUSTERDOWN"):
		return exitNoRedis, "a part of the Cluster is down, so nobody serves it (" + text + ")"
	case strings.Contains(text, "TRYAGAIN"):
		return exitNoRedis, "a part of the Cluster is being moved to another node: try again (" + text + ")"
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout):
		return exitNoRedis, text
	}
	return exitFailed, text
}
