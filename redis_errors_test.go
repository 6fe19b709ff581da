package delayqueue

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// answer is an error that Redis answers.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// TestRedisErrorCodes: the code is found wherever a server puts it.
func TestRedisErrorCodes(t *testing.T) {
	t.Parallel()
	const script = "ERR Error running script (call to f_60d0): @user_script:68: @user_script: 68: "
	dial := &net.OpError{Op: "dial", Err: errBoom}
	failing, fault := new(link), error(dial)
	failing.dialErr.Store(&fault)
	s := newStore(redis.NewClusterClient(&redis.ClusterOptions{}), "dq", "q")
	for _, c := range []struct {
		err                 error
		transient, noEffect bool
		explained           string
	}{
		{answer("READONLY You can't write against a read only replica."), true, true, "ReplicaOnly"},
		{answer(script + "-READONLY You can't write against a read only replica. "), true, true, "replica"},
		{answer("ERR READONLY You can't write"), true, true, "replica"},
		{answer(script + "-NOREPLICAS Not enough good replicas to write."), true, true, ""},
		{answer("NOREPLICAS Not enough good replicas to write."), true, true, ""},
		{answer("LOADING Redis is loading the dataset in memory"), true, true, ""},
		{answer("CLUSTERDOWN The cluster is down"), true, true, ""},
		{answer("TRYAGAIN Multiple keys request during rehashing of slot"), true, true, "resharding"},
		{answer("ERR max number of clients reached"), true, true, ""},
		{answer("UNBLOCKED force unblock from blocking operation"), true, false, ""},
		{answer("BUSY Redis is busy running a script."), true, true, ""},
		{answer(script + "Script killed by user with SCRIPT KILL..."), true, true, ""},
		{answer("BUSYGROUP Consumer Group name already exists"), false, true, ""},
		{answer(script + "WRONGTYPE Operation against a key holding the wrong kind of value"), false, true, "belongs to another program"},
		{answer("WRONGTYPE Operation against a key holding the wrong kind of value"), false, true, "belongs to another program"},
		{answer(script + "-OOM command not allowed when used memory > 'maxmemory'."), false, true, ""},
		{answer("NOPERM this user has no permissions to run the 'evalsha' command"), false, true, "permission"},
		{answer("ERR ACL failure in script: User app has no permissions to run the 'zadd' command"), false, true, "permission"},
		{answer(script + "The user executing the script can't run this command or subcommand"), false, true, "permission"},
		{answer("ERR unauthenticated multibulk length"), false, true, "password"},
		{answer("ERR value is not an integer"), false, true, ""},
		{answer("upstream failure"), false, false, ""},
		{redis.ErrPoolExhausted, true, true, ""},
		{redis.ErrPoolTimeout, true, true, ""},
		{dial, true, true, ""},
		{&net.OpError{Op: "read", Err: errBoom}, true, false, ""},
		{&timeoutError{limit: time.Second, noConnection: true, link: failing}, true, true, "no connection within 1s: dial"},
		{&timeoutError{limit: time.Second}, true, false, "no answer within 1s"},
		{context.Canceled, false, false, ""},
		{redis.ErrClosed, false, false, ""},
	} {
		if got := transient(c.err); got != c.transient {
			t.Errorf("%v: may pass: %t", c.err, got)
		}
		if got := noEffect(c.err); got != c.noEffect {
			t.Errorf("%v: changed nothing: %t", c.err, got)
		}
		if got := s.explain(c.err); !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.explained) {
			t.Errorf("%v is explained as %v", c.err, got)
		}
	}
}

// TestRedisErrorRefusal: only what the server itself says not to have done is certain not to be stored.
func TestRedisErrorRefusal(t *testing.T) {
	t.Parallel()
	for text, refused := range map[string]bool{
		"OOM command not allowed when used memory > 'maxmemory'.":                                                  true,
		"ERR Protocol error: invalid bulk length":                                                                  true,
		"ERR Error running script (call to f_60d0): @user_script:68: @user_script: 68: -READONLY You can't write.": true,
		"UNBLOCKED force unblock from blocking operation, instance state changed":                                  false,
		"upstream failure": false, // a proxy's: it may have passed the call on
		"no upstream host": false,
		"":                 false,
	} {
		if got := refusal(answer(text)); got != refused {
			t.Errorf("%q: refused: %t", text, got)
		}
	}
}

// TestRedisErrorScriptKilled: whoever finds the server busy may kill the script of a queue, which is made anew.
func TestRedisErrorScriptKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--lua-time-limit", "20")
	store := newStore(s.Client(t), "dq", "q")
	killed := make(chan error, 1)
	go func() {
		sc := &script{text: "while true do end", sha: strings.Repeat("0", 40)}
		for {
			err := store.run(context.Background(), sc, nil).err("endless")
			if !timedOut(err) && !says(err, "BUSY") { // it was not killed in time
				killed <- err
				return
			}
		}
	}()
	admin := s.Client(t)
	eventually(t, "it is killed", func() bool {
		_ = admin.ScriptKill(context.Background()).Err()
		return len(killed) == 1
	})
	if err := <-killed; !says(err, "Script killed by user") || !transient(err) || !noEffect(err) {
		t.Errorf("%v: may pass: %t; changed nothing: %t", err, transient(err), noEffect(err))
	}
}

// TestRedisErrorPlainClientOfACluster: a repeat does not mend the wrong kind of client.
func TestRedisErrorPlainClientOfACluster(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr()})
	defer cli.Close()
	hookOwn(t, cli, commandHook(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		err := answer("MOVED 3999 127.0.0.1:6381")
		cmd.SetErr(err)
		return err
	}))
	if _, err := NewPublisher("q", cli).Send(context.Background(), "x"); !errors.Is(err, ErrClusterNode) ||
		!strings.Contains(err.Error(), "redis.NewClusterClient") {
		t.Errorf("Send: %v", err)
	}
}
