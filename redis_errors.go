package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file says what the error of an attempt means: whether it was carried out, and whether a repeat may succeed.

// answerOf is the error that Redis answered with; "" if err is another.
func answerOf(err error) string {
	if err == nil {
		return "" // without an allocation
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	return answer.Error()
}

// says tells whether Redis answered with one of these codes. In an error from within a script the code
// may stand in the middle: "ERR Error running script (call to f_…): @user_script:68: -READONLY …".
func says(err error, codes ...string) bool {
	text := " " + strings.TrimPrefix(answerOf(err), "ERR ") + " "
	for _, code := range codes {
		at := strings.Index(text, code+" ")
		if at == 1 || at > 1 && (text[at-1] == '-' || text[at-2:at] == ": ") {
			return true
		}
	}
	return false
}

// transientCodes are of answers after which nothing has been done, and after which a repeat of the call may succeed.
var transientCodes = []string{
	"READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY", "MOVED", "ASK", "NOREPLICAS",
	"max number of clients reached",
	"Script killed by user", // which the server does only before it has written anything
}

// transient tells errors after which a repeat of the same call may succeed.
func transient(err error) bool {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, ErrClusterNode) {
		return false
	}
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, errServerFull) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		says(err, "UNBLOCKED") || says(err, transientCodes...)
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// noEffect tells errors of attempts that have changed nothing: no server was reached, or it refused.
func noEffect(err error) bool {
	var timeout *timeoutError
	if errors.As(err, &timeout) {
		return timeout.noConnection || timeout.unheard
	}
	if errors.Is(err, errHungUp) || errors.Is(err, errServerFull) {
		return true
	}
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || refusal(err)
}

// denied tells what an ACL refuses. Up to 6.2 a refusal within a script has no code, from 7.0 on another one.
func denied(err error) bool {
	answer := answerOf(err)
	return says(err, "NOPERM") || strings.Contains(answer, "ACL failure in script") ||
		strings.Contains(answer, "The user executing the script can't")
}

// errPast is of a pause until an instant that is not after the server's now.
var errPast = fmt.Errorf("%w: that instant is over, by the server's clock: to end a pause, use Resume", ErrBadOption)

// explain adds to an error what to do about it.
func (s *store) explain(err error) error {
	_, plain := s.cli.(*redis.Client)
	switch {
	case says(err, "DQLAYOUT"):
		_, layout, _ := strings.Cut(err.Error(), "DQLAYOUT ")
		layout, _, _ = strings.Cut(layout, " ")
		return checkLayout(layout)
	case says(err, "DQNOQUEUE"):
		return ErrNoQueue
	case says(err, "DQPAST"):
		return errPast
	case says(err, "WRONGTYPE"):
		return fmt.Errorf("%w: remove that key or use another prefix or name: %w", ErrWrongType, err)
	case says(err, "NOAUTH"), strings.Contains(err.Error(), "unauthenticated multibulk length"): // what it is called for a long command
		return fmt.Errorf("NOAUTH: the server wants a password: set it in the client's options: %w", err)
	case plain && says(err, "MOVED", "ASK"):
		return fmt.Errorf("%w: %w", ErrClusterNode, err)
	case says(err, "READONLY"):
		return fmt.Errorf("the server is a replica: if it is not about to become the primary, the client has a wrong address, "+
			"or asks the sentinels for replicas (ReplicaOnly): %w", err)
	case says(err, "TRYAGAIN"):
		return fmt.Errorf("the slot of the queue is being moved to another node (resharding), and its keys are partly here and partly there: "+
			"calls go on when all have moved: %w", err)
	case denied(err):
		return fmt.Errorf("the Redis user lacks a permission, see Requirements in the README: %w", err)
	}
	return err
}

// errCarriedOut is in the error of a call that was carried out by an attempt of which another part failed.
var errCarriedOut = errors.New("the replicas could not be asked")

// refusal tells an answer of the server that says that a call was not carried out. A server's error begins with its
// code in capitals; what does not is a proxy's, which may have passed the call on.
func refusal(err error) bool {
	code, _, _ := strings.Cut(strings.TrimPrefix(answerOf(err), "-"), " ")
	return code != "" && code == strings.ToUpper(code) && !says(err, "UNBLOCKED") && !errors.Is(err, errCarriedOut)
}

// concernsAll tells errors that no single message of a batch is the cause of.
func concernsAll(err error) bool {
	return errors.Is(err, redis.ErrClosed) || says(err, "OOM", "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF", "READONLY")
}

// A timeoutError ends an attempt that was not answered in time.
type timeoutError struct {
	limit        time.Duration
	noConnection bool  // it got none
	unheard      bool  // it got none that was ready for calls
	link         *link // knows, perhaps only later, why dialling failed
}

func (e *timeoutError) Error() string {
	what := "no answer within"
	switch {
	case e.unheard:
		what = "no answer on a new connection within"
	case e.noConnection:
		what = "no connection within"
	}
	if cause := e.Unwrap(); cause != nil {
		return fmt.Sprintf("%s %v: %v", what, e.limit, cause)
	}
	return fmt.Sprintf("%s %v", what, e.limit)
}

func (e *timeoutError) Unwrap() error {
	if e.link == nil {
		return nil
	}
	return e.link.dialError()
}

// Timeout and Temporary make it a net.Error.
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }
