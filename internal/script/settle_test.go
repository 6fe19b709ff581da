package script

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptErrorOfAnyBytes: an error is kept as it is. TestModel compares where each outcome puts its message.
func TestScriptErrorOfAnyBytes(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0))
		r.done(ends(OutcomeReady, "a", 1, 0, "\x00 %s\n 9 \"é"))
		record, err := message.ParseFail(r.fetch(NewCaller(), 1).Fails[0])
		if err != nil || message.LastError(record.Errors) != "\x00 %s\n 9 \"é" {
			r.t.Errorf("record %+v, %v", record, err)
		}
	})
}

// TestScriptSettleForgottenFetch: if a failover undid the fetch, an ack counts all the same, unless the message may
// be another one by now. TestModel compares the rest.
func TestScriptSettleForgottenFetch(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"after the server forgot the fetch of a later delivery": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(OutcomeReady, "a", 0, 0, ""))
			r.take("2:a")
			r.unlease("2:a")
			r.do("RPUSH", r.Keys.of("ready"), tagFor("2:a"))
			r.do("HSET", r.Keys.State, "armed", rigBase)
			r.equal("void", r.settle(NewCaller(), ack("2:a")), []int{0}) // it would be looked for from end to end
			r.expect("ready 2:a fail a=2/0/0@0s armed 0s")
			r.do("LPOP", r.Keys.of("ready"))
			r.do("ZADD", r.Keys.of("retry"), rigBase, tagFor("2:a"))
			r.equal("void", r.settle(NewCaller(), ack("2:a")), []int(nil))
		}, "armed 0s"},
	})
}

// TestScriptFailoverForgetsFetch: a failover forgets that A was handed a message, a send changes what waits, and B is
// handed that under the same tag. A's renewal says that the delivery is lost, A's ack is void, and the message is
// there until B settles it.
func TestScriptFailoverForgetsFetch(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a replaced message": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k"))) // to A
			a := r.leases[tagFor("a")]
			r.forgot(r.Keys.of("pending"), "a")
			r.equal("the second is accepted", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 0, keyed("k")))),
				"~a@0s")
			r.take("a") // by B, with the payload of the second
			r.at(4 * time.Second)
			b := r.leases[tagFor("a")]
			r.leases[tagFor("a")] = a
			r.equal("A renews", r.extend("a"), []string{lost})
			r.equal("A's ack is void", r.settle(NewCaller(), ack("a", "k")), []int{0})
			r.leases[tagFor("a")] = b
			r.equal("B's failure counts", r.settle(NewCaller(), fails("a", "k")), []int(nil))
		}, "retry 2:a@5s fail a=2/1/0@4s!x key k=a wake 5s"},
		"a group of as many parts": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0))
			first := r.Cli.HGet(queuetest.CtxB, r.Keys.msg, queuetest.IDOf("a")).Val()
			r.answers(NewCaller(), untimed(part("b", 0, 0)))
			r.take("a") // by A, of two parts
			a := r.leases[tagFor("a")]
			r.forgot(r.Keys.of("pending"), "a") // and the second part
			r.do("HSET", r.Keys.msg, queuetest.IDOf("a"), first)
			r.do("HDEL", r.Keys.of("parts"), queuetest.IDOf("a")+":2")
			r.equal("another part", r.answers(NewCaller(), untimed(part("c", 0, 0))), "~a@0s")
			r.equal("parts of B", r.partsFrom(r.fetch(NewCaller(), 1)), "a=a,c")
			r.leases[tagFor("a")] = a
			r.equal("A's ack is void", r.settle(NewCaller(), groupOf(2, ack("a", "k"))), []int{0})
		}, "unack a@10s parts a:2=1 key k=a"},
	})
}

// then is a settlement with the messages that follow it.
func then(s Settlement, follows ...*SendMessage) Settlement {
	s.Follows = follows
	return s
}

// follows settles twice, by a new caller, and returns which settlements were void and which followers were not
// stored, as `<settlement>.<follower>` and the answer as inWords has it.
func (r *rig) follows(all ...Settlement) (void []int, refusals string) {
	r.t.Helper()
	c := newCall()
	first := r.settling(c, all...)
	r.equal("a repeat", r.settling(c, all...), first)
	var words []string
	for _, f := range first.Answers {
		words = append(words,
			fmt.Sprintf("%d.%d%s", f.Settlement, f.Follower, r.inWords(SendReply{Answers: []SendAnswer{f.SendAnswer}})))
	}
	return first.Void, strings.Join(words, " ")
}

// TestScriptThen: a message that follows an ack is noted if it is long, and may have a key that another program left
// behind.
func TestScriptThen(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a long one": {func(r *rig) {
			r.hand(msg("a", 0))
			r.follows(then(ack("a"), msg("b", time.Second, sized(5000))))
			r.equal("big", r.read().Fields["big"], fmt.Sprint(r.read().Messages[queuetest.IDOf("b")].Size))
		}, "pending b@1s wake 1s"},
		"a key that was left behind": {func(r *rig) {
			r.hand(msg("a", 0))
			r.do("HSET", r.Keys.of("key"), "k", "somebody else's")
			r.follows(then(ack("a"), msg("b", time.Second, keyed("k"))))
		}, "pending b@1s key k=b wake 1s"},
	})
}

// TestScriptThenWhenRedisIsFull: on a full server an ack goes through, with the message that follows it.
func TestScriptThenWhenRedisIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, r := server.Client(t), rigAt(t, server.Addr())
	r.hand(msg("a", 0))
	queuetest.Must(t, admin.ConfigSet(queuetest.CtxB, "maxmemory", "1").Err())
	r.done(then(ack("a"), msg("b", time.Hour, keyed("k"))))
	queuetest.Must(t, admin.ConfigSet(queuetest.CtxB, "maxmemory", "0").Err())
	r.expect("pending b@1h0m0s key k=b wake 1h0m0s")
}

func TestScriptExtend(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a shorter lease": {func(r *rig) {
			r.hand(msg("a", 0))
			r.with.Lease = time.Second
			r.extend("a")
			r.expect("unack a@10s") // another consumer asks for more
			r.at(10*time.Second + time.Microsecond)
			r.extend("a") // that one is gone
		}, "unack a@11.000001s"},
	})
}

// TestScriptInterceptNotDue: messages with infinite instants, and of ten deliveries and more, are found.
func TestScriptInterceptNotDue(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"at an infinite instant": {func(r *rig) {
			r.put(msg("a", time.Second), msg("b", time.Second))
			r.do("ZADD", r.Keys.of("pending"), "+inf", queuetest.IDOf("a"), "-inf", queuetest.IDOf("b"))
			r.equal("later", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), statePending)
			r.equal("sooner", r.intercept(NewCaller(), "id", queuetest.IDOf("b")), stateReady)
		}, "wake 1s"},
		"delivery 12": {func(r *rig) {
			r.hand(msg("a", 0))
			for n := 1; n < 12; n++ {
				tag := "a"
				if n > 1 {
					tag = fmt.Sprintf("%d:a", n)
				}
				r.done(ends(OutcomeReady, tag, 0, 0, ""))
				if n < 11 {
					r.take(fmt.Sprintf("%d:a", n+1))
				}
			}
			r.expect("ready 12:a fail a=12/0/0@0s wake 0s")
			r.equal("state", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), stateReady)
		}, "wake 0s"},
	})
}

// TestScriptInterceptKeys: an entry of a key that another program wrote finds nothing, and nothing is changed.
func TestScriptInterceptKeys(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a key that points nowhere": {func(r *rig) {
			r.do("HSET", r.Keys.of("key"), "k", queuetest.IDOf("x"))
			r.do("HSET", r.Keys.State, "swept", "0") // there is such a queue
			r.equal("state", r.intercept(NewCaller(), "key", "k"), StateGone)
			r.put(msg("a", time.Second, keyed("k")))
		}, "pending a@1s key k=a wake 1s"},
		"a key whose entry somebody else wrote": {func(r *rig) {
			r.put(msg("a", time.Second, keyed("k")), msg("b", time.Second))
			r.do("HSET", r.Keys.of("key"), "x", queuetest.IDOf("a"), "y", queuetest.IDOf("b"))
			r.equal("another's key", r.intercept(NewCaller(), "key", "x"), StateGone)
			r.equal("the key of a message without one", r.intercept(NewCaller(), "key", "y"), StateGone)
			r.do("HDEL", r.Keys.of("key"), "x", "y")
		}, "pending a@1s b@1s key k=a wake 1s"},
	})
}
