package link

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestRedisErrorCodes: the code is found wherever a server puts it.
func TestRedisErrorCodes(t *testing.T) {
	t.Parallel()
	const script = "ERR Error running script (call to f_60d0): @user_script:68: @user_script: 68: "
	dial := &net.OpError{Op: "dial", Err: queuetest.ErrBoom}
	failing, fault, begun := new(Link), error(dial), time.Now().Add(-time.Second)
	failing.dialErr.Store(&fault)
	s := NewServer(redis.NewClusterClient(&redis.ClusterOptions{}), "q")
	for _, c := range []struct {
		err                 error
		transient, noEffect bool
		explained           string // a regular expression
	}{
		{queuetest.Answer("READONLY You can't write against a read only replica."), true, true, "ReplicaOnly"},
		{queuetest.Answer(script + "-READONLY You can't write against a read only replica. "), true, true, "replica"},
		{queuetest.Answer("ERR READONLY You can't write"), true, true, "replica"},
		{queuetest.Answer(script + "-NOREPLICAS Not enough good replicas to write."), true, true, ""},
		{queuetest.Answer("NOREPLICAS Not enough good replicas to write."), true, true, ""},
		{queuetest.Answer("LOADING Redis is loading the dataset in memory"), true, true, ""},
		{queuetest.Answer("CLUSTERDOWN The cluster is down"), true, true, ""},
		{queuetest.Answer("TRYAGAIN Multiple keys request during rehashing of slot"), true, true, "resharding"},
		{queuetest.Answer("ERR max number of clients reached"), true, true, ""},
		{queuetest.Answer("UNBLOCKED force unblock from blocking operation"), true, false, ""},
		{queuetest.Answer("BUSY Redis is busy running a script."), true, true, ""},
		{queuetest.Answer(script + "Script killed by user with SCRIPT KILL..."), true, true, ""},
		{queuetest.Answer("BUSYGROUP Consumer Group name already exists"), false, false, ""},
		{queuetest.Answer(script + "WRONGTYPE Operation against a key holding the wrong kind of value"), false, true, ""},
		{queuetest.Answer("WRONGTYPE Operation against a key holding the wrong kind of value"), false, true, ""},
		{queuetest.Answer(script + "-OOM command not allowed when used memory > 'maxmemory'."), false, true, ""},
		{queuetest.Answer("NOPERM this user has no permissions to run the 'evalsha' command"), false, true, "permission"},
		{queuetest.Answer("ERR ACL failure in script: User app has no permissions to run the 'zadd' command"), false, false,
			"permission"},
		{queuetest.Answer(script + "The user executing the script can't run this command or subcommand"), false, false,
			"permission"},
		{queuetest.Answer("ERR unauthenticated multibulk length"), false, true, "password"},
		{queuetest.Answer("ERR value is not an integer"), false, false, ""},
		{queuetest.Answer("upstream failure"), false, false, ""},
		{redis.ErrPoolExhausted, true, true, ""},
		{redis.ErrPoolTimeout, true, true, ""},
		{dial, true, true, ""},
		{&net.OpError{Op: "read", Err: queuetest.ErrBoom}, true, false, ""},
		{failing.late(begun, true), true, true, `no connection was ready within [.\d]+s: dial`},
		{failing.late(begun, false), true, false, `no answer within [.\d]+s`},
		{context.Canceled, false, false, ""},
		{redis.ErrClosed, false, false, ""},
	} {
		if got := Transient(c.err); got != c.transient {
			t.Errorf("%v: may pass: %t", c.err, got)
		}
		if got := NoEffect(c.err); got != c.noEffect {
			t.Errorf("%v: changed nothing: %t", c.err, got)
		}
		if got := s.Explain(c.err); !errors.Is(got, c.err) || !regexp.MustCompile(c.explained).MatchString(got.Error()) {
			t.Errorf("%v is explained as %v", c.err, got)
		}
	}
}

// TestRedisErrorRefusal: each text that a server sends before anything is written says that a call was not carried
// out. No other does, above all none of a proxy, which may have passed the call on.
func TestRedisErrorRefusal(t *testing.T) {
	t.Parallel()
	const script = "ERR Error running script (call to f_60d0): @user_script:68: @user_script: 68: "
	said := []string{
		"NOAUTH Authentication required.", "WRONGPASS invalid username-password pair or user is disabled.",
		"NOPERM this user has no permissions to run the 'evalsha' command", "DENIED Redis is running in protected mode",
		"OOM command not allowed when used memory > 'maxmemory'.",
		script + "-OOM command not allowed when used memory > 'maxmemory'.",
		"MISCONF Redis is configured to save RDB snapshots", "NOSCRIPT No matching script. Please use EVAL.",
		"EXECABORT Transaction discarded because of previous errors.",
		"CROSSSLOT Keys in request don't hash to the same slot",
		"WRONGTYPE Operation against a key", script + "WRONGTYPE Operation against a key",
		"ERR unknown command 'evalsha', with args beginning with: ", "ERR Protocol error: invalid bulk length",
		"ERR Protocol error: unauthenticated multibulk length", "ERR unauthenticated multibulk length",
		"DQSTALE a later call of this caller was carried out", script + "DQLAYOUT 9", "DQNOQUEUE there is none",
		"DQPAST that instant is over", "DQSHARDS 6",
		"READONLY You can't write.", script + "-READONLY You can't write.", "LOADING Redis is loading the dataset in memory",
		"CLUSTERDOWN The cluster is down", "TRYAGAIN Multiple keys request during rehashing of slot",
		"MASTERDOWN Link with MASTER is down",
		"BUSY Redis is busy running a script.", "MOVED 1 127.0.0.1:7000", "ASK 1 127.0.0.1:7000",
		"NOREPLICAS Not enough good replicas to write.", "ERR max number of clients reached",
		script + "Script killed by user with SCRIPT KILL...",
	}
	for _, text := range said {
		if !Refusal(queuetest.Answer(text)) {
			t.Errorf("%q: carried out, perhaps", text)
		}
	}
	for _, code := range refusals {
		if !slices.ContainsFunc(said, func(text string) bool { return Says(queuetest.Answer(text), code) }) {
			t.Errorf("no text has %q", code)
		}
	}
	for _, text := range []string{ // Codis, twemproxy, Envoy, predixy; a script that was ended half-way
		"ERR Connection timed out", "ERR Connection reset by peer", "ERR Server closed connection",
		"ERR handle response, backend conn reset",
		"ERR Connection refused", "ERR Broken pipe", "ERR Proxy error", "ERR no server connection avaliable",
		"upstream failure", "no upstream host",
		"UNBLOCKED force unblock from blocking operation, instance state changed", script + "attempt to index a nil value",
		script + "The user executing the script can't run this command or subcommand", "ERR value is not an integer", "ERR",
		"TIMEOUT", "",
		"NOPERM ACL failure in script: User app has no permissions to run the 'zadd' command",
	} {
		if Refusal(queuetest.Answer(text)) {
			t.Errorf("%q: not carried out, for sure", text)
		}
	}
}

// TestRedisErrorScriptKilled: whoever finds the server busy may kill the script of a queue, which is made anew.
func TestRedisErrorScriptKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--lua-time-limit", "20")
	busy := NewServer(s.Client(t), "q")
	killed := make(chan error, 1)
	go func() {
		for {
			err := busy.Attempt(queuetest.CtxB, Effort{Call: func(ctx context.Context, cli redis.UniversalClient) error {
				return cli.Eval(ctx, "while true do end", nil).Err()
			}})
			if !TimedOut(err) && !Says(err, "BUSY") { // it was not killed in time
				killed <- err
				return
			}
		}
	}()
	admin := s.Client(t)
	queuetest.Eventually(t, "it is killed", func() bool {
		_ = admin.ScriptKill(context.Background()).Err()
		return len(killed) == 1
	})
	if err := <-killed; !Says(err, "Script killed by user") || !Transient(err) || !NoEffect(err) {
		t.Errorf("%v: may pass: %t; changed nothing: %t", err, Transient(err), NoEffect(err))
	}
}

// TestRedisErrorPlainClientOfACluster: a repeat does not mend the wrong kind of client.
func TestRedisErrorPlainClientOfACluster(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr()})
	defer cli.Close()
	t.Cleanup(Interpose(cli, queuetest.CommandHook(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		err := queuetest.Answer("MOVED 3999 127.0.0.1:6381")
		cmd.SetErr(err)
		return err
	})))
	if err := ping(cli); !errors.Is(err, ErrClusterNode) || Transient(err) ||
		!strings.Contains(err.Error(), "redis.NewClusterClient") {
		t.Error(err)
	}
}
