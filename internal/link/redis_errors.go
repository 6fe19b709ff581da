package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file says what the error of an attempt means: whether it was carried out, and whether a repeat may succeed.

// AnswerOf is the error that Redis answered with; "" if err is another.
func AnswerOf(err error) string {
	if err == nil {
		return "" // without an allocation
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	return answer.Error()
}

// Says tells whether Redis answered with one of these codes. In an error from within a script the code
// may stand in the middle: "ERR Error running script (call to f_…): @user_script:68: -READONLY …".
func Says(err error, codes ...string) bool {
	text := " " + strings.TrimPrefix(AnswerOf(err), "ERR ") + " "
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

// ErrClusterNode: the Redis that a plain client talks to is a node of a Cluster.
var ErrClusterNode = errors.New("this Redis is a node of a Cluster: use redis.NewClusterClient")

// Transient tells errors after which a repeat of the same call may succeed.
func Transient(err error) bool {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, ErrClusterNode) {
		return false
	}
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, errHungUp) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		Says(err, "UNBLOCKED") || Says(err, transientCodes...)
}

// TimedOut tells errors of calls that took too long.
func TimedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// A timeout is why an attempt ended that was not answered in time. It is a net.Error.
type timeout string

const (
	errUnanswered   timeout = "no answer" // whether the call was carried out is not known
	errNoConnection timeout = "no connection was ready"
)

func (t timeout) Error() string { return string(t) }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// NoEffect tells errors of attempts that have changed nothing: no server was reached, or it refused.
func NoEffect(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.Is(err, errNoConnection) || errors.Is(err, errHungUp) ||
		errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || Refusal(err)
}

// Denied tells refusals by an ACL.
func Denied(err error) bool { return Says(err, "NOPERM") || deniedInScript(err) }

// deniedInScript tells that an ACL ended a script, perhaps after its first write. Such a refusal has no code in Redis
// 6.2.
func deniedInScript(err error) bool {
	answer := AnswerOf(err)
	return strings.Contains(answer, "ACL failure in script") ||
		strings.Contains(answer, "The user executing the script can't")
}

// Explain adds to an error what to do about it.
func (s *Server) Explain(err error) error {
	_, plain := s.Cli.(*redis.Client)
	switch {
	case Says(err, "NOAUTH"),
		strings.Contains(err.Error(), "unauthenticated multibulk length"): // what it is called for a long command
		return fmt.Errorf("NOAUTH: the server wants a password: set it in the client's options: %w", err)
	case plain && Says(err, "MOVED", "ASK"):
		return fmt.Errorf("%w: %w", ErrClusterNode, err)
	case Says(err, "READONLY"):
		return fmt.Errorf(
			"the server is a replica: if it is not about to become the primary, the client has a wrong address, "+
				"or asks the sentinels for replicas (ReplicaOnly): %w", err)
	case Says(err, "TRYAGAIN"):
		return fmt.Errorf(
			"the slot of the queue is being moved to another node (resharding), and its keys are partly here and partly there: "+
				"calls go on when all have moved: %w", err)
	case Denied(err):
		return fmt.Errorf("the Redis user lacks a permission (docs/acl.md has its rights): %w", err)
	}
	return err
}

// ErrRevoked is of an attempt that nobody waits for any more, and of which nothing was written.
var ErrRevoked = errors.New("nobody waits for this attempt any more, and nothing of it was written")

// ErrCarriedOut: the call was carried out, but another part of the attempt failed.
var ErrCarriedOut = errors.New("the call was carried out")

// refusals begin the answers that a server gives before it runs a command, or lets a script write anything: Redis's
// processCommand and createSharedObjects (src/server.c), setProtocolError (src/networking.c), scriptPrepareForRun
// (src/script.c), as of 7.0. The scripts of this library read what has a type, and write what takes memory, before
// anything else, and give the answers in DQ. Any other answer may be a proxy's, which has passed the call on, or that
// of a script which was ended half-way.
var refusals = append([]string{
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "OOM", "MISCONF", "NOSCRIPT", "EXECABORT", "CROSSSLOT", "WRONGTYPE",
	"unknown command", "Protocol error:", "unauthenticated multibulk length",
	"DQSTALE", "DQLAYOUT", "DQNOQUEUE", "DQPAST", "DQSHARDS",
}, transientCodes...)

// Refusal tells an answer that says that a call was not carried out.
func Refusal(err error) bool {
	return Says(err, refusals...) && !deniedInScript(err) && !errors.Is(err, ErrCarriedOut)
}

// ConcernsAll tells errors that are not caused by a single message of a batch.
func ConcernsAll(err error) bool {
	return errors.Is(err, redis.ErrClosed) || Says(err, "OOM", "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF", "READONLY")
}
