package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// breakage is one way to break the good state, and every breach that must be
// found then, without the name of the queue.
type breakage struct {
	name string
	make func(b *bed)
	want func(b *bed) []string
}

// says is a want that does not depend on the clock.
func says(sentences ...string) func(*bed) []string {
	return func(*bed) []string { return sentences }
}

var breakages = []breakage{
	{"nothing", func(b *bed) {}, says()},

	// The keys themselves.
	{"wrong type", func(b *bed) {
		b.do("DEL", "ready")
		b.do("SADD", "ready", "x")
		b.do("DEL", "wake")
		b.do("SET", "wake", "1")
	}, says(
		`ready: the key is a set, want a list, so the content of the queue was not checked.`,
		`wake: the key is a string, want a zset, so the content of the queue was not checked.`,
	)},
	{"time to live", func(b *bed) { b.do("PEXPIRE", "msg", 100_000); b.do("EXPIRE", "state", 100) }, says(
		`msg: the key has a time to live, and no message may expire by itself.`,
		`state: the key has a time to live, and no message may expire by itself.`,
	)},
	{"layout 1", func(b *bed) { b.do("HSET", "state", "layout", "1") }, says()},
	{"layout 2", func(b *bed) { b.do("HSET", "state", "layout", "2") },
		says(`state: field layout is "2", and only 1 is known here, so what looks wrong may be right.`)},
	{"stray key", func(b *bed) { b.do("SET", "other", "x") }, func(b *bed) []string {
		return []string{fmt.Sprintf(`other: the key %q is none of those of a queue.`, b.q.Key("other"))}
	}},

	// One place for each message.
	{"lost", func(b *bed) { b.endLease() },
		says(`msg: message ` + idUnack + ` is in none of the seven structures.`)},
	{"twice in ready", func(b *bed) { b.do("RPUSH", "ready", "2:"+idReady) },
		says(`msg: message ` + idReady + ` is in 2 places, want 1: ready as "2:` + idReady + `", ready as "2:` + idReady +
			`".`)},
	{"one tag in two structures", func(b *bed) { b.lease("c:8", b.now, 1, "3:"+idRetry) },
		says(`msg: message ` + idRetry + ` is in 2 places, want 1: unack as "3:` + idRetry + `", retry as "3:` + idRetry +
			`".`)},
	{"two tags in one structure", func(b *bed) { b.do("RPUSH", "ready", "3:"+idReady) },
		says(`msg: message ` + idReady + ` is in 2 places, want 1: ready as "2:` + idReady + `", ready as "3:` + idReady +
			`".`)},
	{"in garbage and alive", func(b *bed) {
		b.do("RPUSH", "ready", "4:"+idGarbage)
		b.do("HSET", "key", "order-6", idGarbage)
	},
		says(`msg: message ` + idGarbage + ` is in 2 places, want 1: ready as "4:` + idGarbage + `", garbage as "` +
			idGarbage + `".`)},
	{"no envelope", func(b *bed) { b.do("HDEL", "msg", idReady, idGarbage) }, says(
		`ready: tag "2:`+idReady+`" of message `+idReady+` has no envelope in msg.`,
		`garbage: tag "`+idGarbage+`" of message `+idGarbage+` has no envelope in msg.`,
	)},

	// Tags and scores.
	{"tag with leading zero", func(b *bed) { b.do("LSET", "ready", 0, "02:"+idReady) },
		says(`ready: tag "02:` + idReady + `" is malformed: ` + malformedTag + `.`)},
	{"tag without id", func(b *bed) { b.do("RPUSH", "ready", "2:nobody") },
		says(`ready: tag "2:nobody" is malformed: ` + malformedTag + `.`)},
	{"field of msg is no id", func(b *bed) { b.do("HSET", "msg", "nobody", encode(b.now, "", 0, 0)) },
		says(`msg: field "nobody" is no UUIDv7.`)},
	{"score with a fraction", func(b *bed) { b.do("ZADD", "retry", "1000.5", "3:"+idRetry) },
		says(`retry: tag "3:` + idRetry + `" has score 1000.5, want an integer in (0, 2^53).`)},
	{"pending later than its due", func(b *bed) { b.do("ZINCRBY", "pending", 1, idPending) }, func(b *bed) []string {
		due := b.now + 60*second
		return []string{fmt.Sprintf(`pending: message %s has score %d, but due %d in its envelope.`, idPending, due+1, due)}
	}},

	// Delivery numbers.
	{"second delivery in pending", func(b *bed) {
		b.do("ZREM", "pending", idPending)
		b.do("ZADD", "pending", b.now+60*second, "2:"+idPending)
		b.do("HSET", "fail", idPending, fmt.Sprintf("2 0 0 %d ", b.now))
	}, says(`pending: message ` + idPending + ` is at delivery 2, and only a first one may be here.`)},
	{"first delivery in retry", func(b *bed) {
		b.do("ZREM", "retry", "3:"+idRetry)
		b.do("ZADD", "retry", b.now+60*second, idRetry)
		b.do("HDEL", "fail", idRetry)
	}, says(`retry: message ` + idRetry + ` is at delivery 1, and only a later one may be here.`)},
	{"first delivery in ready", func(b *bed) { b.do("LSET", "ready", 0, idReady); b.do("HDEL", "fail", idReady) },
		says(`ready: message ` + idReady + ` is at delivery 1, and only a later one may be here.`)},
	{"tag in garbage", func(b *bed) {
		b.do("ZREM", "garbage", idGarbage)
		b.do("ZADD", "garbage", b.now, "4:"+idGarbage)
	}, says(`garbage: message ` + idGarbage + ` is here under tag "4:` + idGarbage + `", want the id alone.`)},
	{"fail says another delivery", func(b *bed) { b.do("HSET", "fail", idReady, fmt.Sprintf("3 0 0 %d ", b.now)) },
		says(`fail: message ` + idReady + ` is in ready at delivery 2, but its record says 3.`)},
	{"fail says 2 of a first delivery", func(b *bed) { b.do("HSET", "fail", idPending, fmt.Sprintf("2 0 0 %d ", b.now)) },
		says(`fail: message ` + idPending + ` is in pending at delivery 1, but its record says 2.`)},
	{"superseded", func(b *bed) {
		b.do("HSET", "state", "overtaken", 1)
		b.do("HSET", "fail", idUnack, "1 0 0 0 \x1f")
		b.do("HDEL", "key", "order-4")
	}, says()},
	{"superseded, and has its key", func(b *bed) {
		b.do("HSET", "state", "overtaken", 1)
		b.do("HSET", "fail", idUnack, "1 0 0 0 \x1f")
	}, says(`key: key "order-4" points at message ` + idUnack + `, which was superseded.`)},
	{"superseded, and nobody handles it", func(b *bed) {
		b.do("HSET", "state", "overtaken", 1)
		b.do("HSET", "fail", idReady, fmt.Sprintf("2 0 0 %d \x1f", b.now))
	}, says(`fail: message ` + idReady +
		` is in ready, but its record says that its delivery was superseded, which is handled or done.`)},
	{"superseded, and nobody looks", func(b *bed) {
		b.do("HSET", "fail", idUnack, "1 0 0 0 \x1f")
		b.do("HDEL", "key", "order-4")
	}, says(`fail: a delivery of message ` + idUnack +
		` was superseded, but field overtaken of state is not set, so nobody would see.`)},
	{"fail for a first delivery", func(b *bed) { b.do("HSET", "fail", idUnack, fmt.Sprintf("1 0 0 %d ", b.now)) },
		says(`fail: message ` + idUnack +
			` is in unack at delivery 1 and has a record, which only later ones and garbage have.`)},
	{"no fail for a later delivery", func(b *bed) { b.do("HDEL", "fail", idRetry) },
		says(`fail: message ` + idRetry + ` is in retry at delivery 3 and has no record.`)},
	{"no fail for garbage", func(b *bed) { b.do("HDEL", "fail", idGarbage1) },
		says(`fail: message ` + idGarbage1 + ` lies in garbage and has no record.`)},
	{"fail of nobody", func(b *bed) { b.do("HSET", "fail", idNobody, fmt.Sprintf("2 0 0 %d ", b.now)) },
		says(`fail: the record of message ` + idNobody + ` belongs to no message.`)},
	{"fail cut short", func(b *bed) { b.do("HSET", "fail", idReady, "2 0 0 5") },
		says(`fail: the record of message ` + idReady + ` is malformed: broken fail record "2 0 0 5".`)},
	{"fail with an instant by tostring", func(b *bed) { b.do("HSET", "fail", idReady, "2 0 0 1.7e+15 x") },
		says(`fail: the record of message ` + idReady + ` is malformed: broken fail record "2 0 0 1.7e+15 x".`)},
	{"fail of delivery 0", func(b *bed) { b.do("HSET", "fail", idGarbage, "0 0 0 5 x") },
		says(`fail: the record of message ` + idGarbage + ` is malformed: its delivery number is 0, want 1 or more.`)},
	{"paused without a reason", func(b *bed) { b.do("HSET", "state", "paused", "5 6 ann") },
		says(`state: field paused is "5 6 ann", want two instants, who says so, a newline and why, of at most 1201 bytes.`)},
	{"paused as it is written", func(b *bed) { b.do("HSET", "state", "paused", "5 6 ann\n") }, says()},
	{"fail with an error but no instant", func(b *bed) { b.do("HSET", "fail", idRetry, "3 0 0 0 x") },
		says(`fail: the record of message ` + idRetry +
			` is malformed: its instant is 0 though there was a failure, a loss or an error.`)},
	{"errors without their numbers", func(b *bed) { b.do("HSET", "fail", idRetry, "3 0 0 5 \x1ex") },
		says(`fail: the record of message ` + idRetry +
			` is malformed: its errors are "\x1ex", want an instant, a delivery number and a text of each.`)},
	{"an error at no instant", func(b *bed) { b.do("HSET", "fail", idRetry, "3 0 0 5 \x1e5 2 x\x1e-1 1 x") },
		says(`fail: the record of message ` + idRetry +
			` is malformed: its errors are "\x1e5 2 x\x1e-1 1 x", want an instant, a delivery number and a text of each.`)},
	{"six errors", func(b *bed) { b.do("HSET", "fail", idRetry, "3 0 0 5 "+strings.Repeat("\x1e0 0 x", 6)) },
		says(`fail: the record of message ` + idRetry + ` is malformed: there are more than 5 errors.`)},
	{"errors out of order", func(b *bed) { b.do("HSET", "fail", idRetry, "3 0 0 5 \x1e5 2 x\x1e4 2 x") },
		says(`fail: the record of message ` + idRetry +
			` is malformed: error 2 is of delivery 2, and comes before that of delivery 2.`)},
	{"an error of the delivery to come", func(b *bed) { b.do("HSET", "fail", idRetry, "3 0 0 5 \x1e5 3 x") },
		says(`fail: the record of message ` + idRetry +
			` is malformed: error 1 is of delivery 3, and comes before that of delivery 3.`)},
	{"an error that is too long", func(b *bed) {
		b.do("HSET", "fail", idRetry, "3 0 0 5 \x1e5 2 "+strings.Repeat("x", 1025))
	},
		says(`fail: the record of message ` + idRetry + ` is malformed: error 1 has 1025 bytes, want at most 1024.`)},
	{"more failures than deliveries", func(b *bed) { b.do("HSET", "fail", idRetry, "3 2 1 5 x") },
		says(`fail: the record of message ` + idRetry + ` counts 2 failures and 1 losses in 2 ended deliveries.`)},
	{"more failures than deliveries in garbage", func(b *bed) { b.do("HSET", "fail", idGarbage, "4 4 1 5 x") },
		says(`fail: the record of message ` + idGarbage + ` counts 4 failures and 1 losses in 4 ended deliveries.`)},

	// Envelopes; package message has what else is broken.
	{"envelope with unknown flags", func(b *bed) { b.do("HSET", "msg", idReady, encode(b.now, "", 4, 3, "p")) },
		says(`msg: the envelope of message ` + idReady + ` is malformed: broken envelope: 22 bytes of version 1.`)},
	{"envelope due at 0", func(b *bed) { b.do("HSET", "msg", idReady, encode(0, "", 0, 3, "p")) },
		says(`msg: the envelope of message ` + idReady + ` is malformed: it is due at 0, want an instant in (0, 2^53).`)},
	{"envelope with a key that is too long", func(b *bed) {
		b.do("HSET", "msg", idReady, encode(b.now, strings.Repeat("k", 513), 0, 3, "p"))
	}, says(`msg: the envelope of message ` + idReady + ` is malformed: its key has 513 bytes, want at most 512.`)},
	{"envelope of a newer version", func(b *bed) { b.do("HSET", "msg", idReady, "\x03"+encode(b.now, "", 0, 3, "p")[1:]) },
		says(`msg: the envelope of message ` + idReady + ` is malformed: message was written by a newer version: 3.`)},
	{"envelope longer than big", func(b *bed) {
		b.do("HSET", "msg", idReady, encode(b.now, "", 0, 3, strings.Repeat("p", 3000)))
		b.do("HSET", "state", "big", 3020)
	}, says(`state: big is 3020, but the envelope of message ` + idReady + ` has 3021 bytes.`)},
	{"envelope too long for no big", func(b *bed) {
		b.do("HSET", "msg", idReady, encode(b.now, "", 0, 3, strings.Repeat("p", 2030)))
		b.do("HDEL", "state", "big")
	}, says(`state: big is 0, but the envelope of message ` + idReady + ` has 2051 bytes.`)},
	{"short envelopes and no big", func(b *bed) { b.do("HDEL", "state", "big") }, says()},
	{"big by tostring", func(b *bed) { b.do("HSET", "state", "big", "1e+06") },
		says(`state: field big is "1e+06", want digits only.`)},

	// Message keys.
	{"key missing", func(b *bed) { b.do("HDEL", "key", "order-4") },
		says(`key: key "order-4" of message ` + idUnack + ` is missing.`)},
	{"key of another", func(b *bed) { b.do("HSET", "key", "order-4", idPending) },
		says(`key: key "order-4" of message ` + idUnack + ` points at ` + idPending + `.`)},
	{"key of nobody", func(b *bed) { b.do("HSET", "key", "order-9", idNobody) },
		says(`key: key "order-9" points at ` + idNobody + `, which is no message.`)},
	{"key of a message without one", func(b *bed) { b.do("HSET", "key", "order-9", idRetry) },
		says(`key: key "order-9" points at message ` + idRetry + `, which has no key.`)},
	{"second key", func(b *bed) { b.do("HSET", "key", "order-9", idPending) },
		says(`key: key "order-9" points at message ` + idPending + `, whose key is "order-1".`)},
	{"a key that an acked message keeps", func(b *bed) { b.hold("order-9", b.now+second) }, says()},
	{"for a time that is over", func(b *bed) { b.hold("order-9", b.now-second) }, says()},
	{"that another message took over", func(b *bed) { b.hold("order-9", b.now+second); b.do("HDEL", "key", "order-9") },
		says()},
	{"a key that an acked message does not keep", func(b *bed) { b.do("HSET", "key", "order-9", "acked:"+idNobody) },
		says(`key: key "order-9" points at ` + idNobody + `, which is no message.`)},
	{"held, and the next end is not known", func(b *bed) {
		b.hold("order-9", b.now+second)
		b.do("HDEL", "state", "holds")
	},
		func(b *bed) []string {
			return []string{
				fmt.Sprintf(`state: field holds is 0, but key "order-9" is held until %d, and nobody would free it in time.`,
					b.now+second)}
		}},
	{"held for ever", func(b *bed) { b.hold("order-9", b.now+second); b.do("ZADD", "holds", "+inf", "order-9") },
		says(`holds: key "order-9" has score inf, want an integer in (0, 2^53).`)},
	{"key of garbage", func(b *bed) { b.do("HSET", "key", "order-6", idGarbage) },
		says(`key: key "order-6" points at message ` + idGarbage + `, which lies in garbage.`)},

	// wake and state.
	{"wake under another name", func(b *bed) { b.do("DEL", "wake"); b.do("ZADD", "wake", b.now, "x") },
		says(`wake: member "x", want none but "w".`)},
	{"marker with a fraction", func(b *bed) { b.do("ZADD", "wake", "1.5", "w") },
		says(`wake: member "w" has score 1.5, want an integer in (0, 2^53).`)},
	{"marker is not what is armed", func(b *bed) { b.do("ZADD", "wake", b.now-7, "w") }, func(b *bed) []string {
		return []string{fmt.Sprintf(`wake: the marker stands at %d, but armed is %d.`, b.now-7, b.now)}
	}},
	{"marker taken", func(b *bed) { b.do("DEL", "wake") }, says()},
	{"not armed, ready", func(b *bed) { b.do("DEL", "wake"); b.do("HDEL", "state", "armed") },
		says(`state: armed is not set, but ready holds tag "2:` + idReady + `", so nobody would be woken.`)},
	{"armed 0, retry first", func(b *bed) { b.emptyReady(); b.do("DEL", "wake"); b.do("HSET", "state", "armed", 0) },
		func(b *bed) []string {
			return []string{fmt.Sprintf(`state: armed is not set, but retry holds tag "3:%s" for %d, so nobody would be woken.`,
				idRetry,
				b.now+30*second)}
		}},
	{"marker, but not armed", func(b *bed) {
		b.emptyReady()
		b.do("DEL", "pending")
		b.do("DEL", "retry")
		b.forget()
		b.do("HDEL", "state", "armed")
	}, func(b *bed) []string {
		return []string{fmt.Sprintf(`wake: the marker stands at %d, but armed is 0.`, b.now)}
	}},
	{"armed for retry", func(b *bed) { b.emptyReady(); b.arm(b.now + 30*second) }, says()},
	{"armed after retry", func(b *bed) { b.emptyReady(); b.arm(b.now + 30*second + 1) }, func(b *bed) []string {
		return []string{
			fmt.Sprintf(`state: armed is %d, but retry holds tag "3:%s" for %d, so a sleeper would be woken late.`,
				b.now+30*second+1, idRetry, b.now+30*second)}
	}},
	{"armed after pending", func(b *bed) {
		b.emptyReady()
		b.do("ZADD", "retry", b.now+90*second, "3:"+idRetry)
		b.arm(b.now + 60*second + 1)
	}, func(b *bed) []string {
		return []string{
			fmt.Sprintf(`state: armed is %d, but pending holds tag "%s" for %d, so a sleeper would be woken late.`,
				b.now+60*second+1, idPending, b.now+60*second)}
	}},
	{"armed in the future though ready", func(b *bed) { b.arm(b.now + 20*second) }, func(b *bed) []string {
		return []string{fmt.Sprintf(`state: armed is %d, but ready holds tag "2:%s", so a sleeper would be woken late.`,
			b.now+20*second, idReady)}
	}},
	{"armed by tostring", func(b *bed) { b.do("HSET", "state", "armed", "1.7e+15") },
		says(`state: field armed is "1.7e+15", want digits only.`)},
	{"unknown field", func(b *bed) { b.do("HSET", "state", "sewn", "1") },
		says(`state: field "sewn" is not in the layout.`)},
	{"call without a reply", func(b *bed) { b.do("HSET", "state", "call:c", "1 5") },
		says(`state: field "call:c" is malformed: "1 5" has 2 parts, want 3.`)},
	{"call with a bad number", func(b *bed) { b.do("HSET", "state", "call:c", "01 5 x") },
		says(`state: field "call:c" is malformed: its call number is "01", want no leading zero.`)},
	{"call with a bad instant", func(b *bed) { b.do("HSET", "state", "call:c", "1 9007199254740992 x") },
		says(`state: field "call:c" is malformed: its instant is "9007199254740992", want less than 2^53.`)},
	{"call at 0", func(b *bed) { b.do("HSET", "state", "call:c", "1 0 x") },
		says(`state: field "call:c" is malformed: its instant is 0.`)},
	{"call of nobody", func(b *bed) { b.do("HSET", "state", "call:", "1 5 x") },
		says(`state: field "call:" is malformed: it names no caller.`)},
	{"a rate of one in a year", func(b *bed) { b.do("HSET", "state", "tat", "9238611600000000000") }, says()},
	{"a rate that overflowed", func(b *bed) { b.do("HSET", "state", "tat", "-9223372036854775808") },
		says(`state: field tat is "-9223372036854775808", want a number.`)},
	{"counts", func(b *bed) { b.do("HSET", "state", "delivered", "3", "garbage", "0", "ticked", b.now) }, says()},

	// The books.
	{"books of all", func(b *bed) {
		n := b.messages()
		b.do("HSET", "state", "in:stored", n+20, "in:followed", "3", "in:scheduled", "1", "in:imported", "1", "out:acked",
			"9", "kept", "2",
			"out:over", "1", "out:superseded", "1", "out:intercepted", "1", "out:canceled", "2", "out:deleted", "2", "out:aged",
			"3", "out:trimmed", "2",
			"out:lost", "1")
	}, says()},

	// Sequences.
	{"sequences", func(b *bed) {
		b.do("HSET", "sequence", "outbox", "09223372036854775850", "\xff", "18446744073709551615")
	}, says()},
	{"sequences of somebody else", func(b *bed) {
		b.do("HSET", "sequence", "a", "42", "b", "18446744073709551616", "c", "-0000000000000000001")
	}, says(
		`sequence: sequence "a" is at "42", want 20 digits below 2^64.`,
		`sequence: sequence "b" is at "18446744073709551616", want 20 digits below 2^64.`,
		`sequence: sequence "c" is at "-0000000000000000001", want 20 digits below 2^64.`,
	)},

	// What is done.
	{"done", func(b *bed) { b.done() }, says()},
	{"done, and the next end is not known", func(b *bed) { b.done(); b.do("HSET", "state", "done", 0) },
		func(b *bed) []string {
			return []string{fmt.Sprintf("state: field done is 0, but done holds %q until %d, which nobody would delete in time.",
				idUnack,
				b.now+60*second)}
		}},
	{"done, and the next end is too late", func(b *bed) { b.done(); b.do("HSET", "state", "done", b.now+61*second) },
		func(b *bed) []string {
			return []string{
				fmt.Sprintf("state: field done is %d, but done holds %q until %d, which nobody would delete in time.",
					b.now+61*second, idUnack, b.now+60*second)}
		}},
	{"done without a record", func(b *bed) { b.done(); b.do("HDEL", "fail", idUnack) },
		says(`fail: message ` + idUnack + ` lies in done and has no record.`)},
	{"done without an envelope", func(b *bed) { b.done(); b.do("HDEL", "msg", idUnack) },
		says(`done: tag "` + idUnack + `" of message ` + idUnack + ` has no envelope in msg.`)},
	{"tag in done", func(b *bed) {
		b.done()
		b.do("ZREM", "done", idUnack)
		b.do("ZADD", "done", b.now+60*second, "2:"+idUnack)
	},
		says(`done: message ` + idUnack + ` is here under tag "2:` + idUnack + `", want the id alone.`)},
	{"done and handed out", func(b *bed) {
		b.done()
		b.do("RPUSH", "ready", "2:"+idUnack)
		b.do("HSET", "key", "order-4", idUnack)
	},
		says(`msg: message ` + idUnack + ` is in 2 places, want 1: ready as "2:` + idUnack + `", done as "` + idUnack +
			`".`)},
	{"key of what is done", func(b *bed) { b.done(); b.do("HSET", "key", "order-4", idUnack) },
		says(`key: key "order-4" points at message ` + idUnack + `, which lies in done.`)},
	{"result of what is not done", func(b *bed) { b.do("HSET", "result", idRetry, "x") },
		says(`result: the result of ` + idRetry + ` belongs to no message that is done.`)},
	{"result of nothing", func(b *bed) { b.done(); b.do("HSET", "result", idUnack, "") },
		says(`result: the result of message ` + idUnack + ` has 0 bytes, want 1 to 1048576.`)},
	{"a group", func(b *bed) { b.group(2, 3, "2", "abc", "3", "") }, says()},
	{"a group of one part", func(b *bed) { b.group(0, 0) }, says()},
	{"parts of nothing", func(b *bed) { b.group(0, 0, "2", "x"); b.do("HSET", "parts", idNobody+":2", "x", "y", "z") },
		says(
			`parts: part "`+idNobody+`:2" belongs to no group that counts it.`,
			`parts: part "`+idRetry+`:2" belongs to no group that counts it.`,
			`parts: part "y" belongs to no group that counts it.`)},
	{"a part that is missing", func(b *bed) { b.group(2, 3, "3", "abc") }, says(
		`parts: group ` + idRetry + ` has 3 parts, with 3 bytes besides the first, and of these 1 are there, with 3.`)},
	{"a part that is longer", func(b *bed) { b.group(2, 3, "2", "abc", "3", "d") }, says(
		`parts: group ` + idRetry + ` has 3 parts, with 3 bytes besides the first, and of these 2 are there, with 4.`)},
	{"a list of nothing", func(b *bed) { b.group(0, 0); b.do("HSET", "parts", ":k", idNobody, ":", "") }, says(
		`parts: key "" lists "", which is no live group that has left it.`,
		`parts: key "k" lists "`+idNobody+`", which is no live group that has left it.`)},
	{"a list that is sound", func(b *bed) { b.leftGroup(); b.do("HSET", "parts", ":k", idRetry) }, says()},
	{"a list of a group that is listed twice", func(b *bed) {
		b.leftGroup()
		b.do("HSET", "parts", ":k", idRetry+" "+idRetry)
	}, says(
		`parts: key "k" lists 2 groups, want at most 100, each once.`)},
	{"a list of a group that left another key", func(b *bed) {
		b.leftGroup()
		b.do("HSET", "parts", ":k", idRetry, ":l", idRetry)
	}, says(
		`parts: key "l" lists "` + idRetry + `", which is no live group that has left it.`)},
	{"a group that left its key and is not listed", func(b *bed) { b.leftGroup() }, says(
		`msg: group ` + idRetry + ` has left key "k", which does not list it: no call by key finds it.`)},
	{"a list that is not noted", func(b *bed) {
		b.leftGroup()
		b.do("HSET", "parts", ":k", idRetry)
		b.do("HDEL", "state", "parts")
	}, says(
		`state: field parts is not set, but 1 keys have been left by groups.`)},
	{"a group that is not noted", func(b *bed) { b.group(2, 3, "2", "abc", "3", ""); b.do("HDEL", "state", "parts") },
		says(
			`state: field parts is not set, but there are 1 groups with parts, which nobody would delete.`)},

	// What Monitors alone read.
	{"consumers and history expire", func(b *bed) {
		b.do("HSET", "consumers", "c", fmt.Sprintf("%d 10000000 {}", b.now))
		b.do("HSET", "history", "477000", "1 2 3 4 5 6 7 8 9 10", "d19875", "1 0 0 0 0 0 0 0 0 0")
		b.do("EXPIRE", "consumers", 100)
		b.do("EXPIRE", "history", 100)
	}, says()},
	{"journal", func(b *bed) {
		b.do("ZADD", "journal", b.now, fmt.Sprintf(`0f3a61c2d4e5b697 runs %d {"act":"delete"}`, b.now))
		b.do("EXPIRE", "journal", 100)
	}, says()},
	{"journal of something else", func(b *bed) {
		b.do("ZADD", "journal", 6, "x", 5, "0f3a61c2d4e5b697 done 6 {")
	}, says(
		`journal: entry "0f3a61c2d4e5b697 done 6 {" is malformed, want <16 digits> done|runs|stop <us> <JSON>.`,
		`journal: entry "x" is malformed, want <16 digits> done|runs|stop <us> <JSON>.`)},
	{"journal without an end", func(b *bed) {
		for i := range maxJournal + 2 {
			b.do("ZADD", "journal", i+1, fmt.Sprintf(`%016x done %d {}`, i, i+1))
		}
	}, says(`journal: it has 1002 entries, want at most 1000.`)},
	{"history of something else", func(b *bed) {
		b.do("HSET", "history", "477000:sent", "1", "d1", "1 2 3 4 5", "2", "1 2 3 4 5 6 7 8 9 10.0")
	}, says(
		`history: field "2" is "1 2 3 4 5 6 7 8 9 10.0", `+wantTen,
		`history: field "477000:sent", want <hours since 1970> or d<days since 1970>.`,
		`history: field "d1" is "1 2 3 4 5", `+wantTen,
	)},
}

const wantTen = `want a number of each of sent delivered acked failed lost garbage superseded started late latest.`

// hold makes an acked message keep a key taken.
func (b *bed) hold(key string, until int64) {
	b.do("HSET", "key", key, "acked:"+idNobody)
	b.do("ZADD", "holds", until, key)
	b.do("HSET", "state", "holds", until)
}

// leftGroup makes the message of retry a group of one part that has left the key k.
func (b *bed) leftGroup() {
	b.do("HSET", "msg", idRetry, fmt.Sprintf("\x02%d\x00\x00\x81\x0c00010000000k\x01\x01a", b.now-7*second))
	b.do("HSET", "state", "parts", 1)
}

// group makes the message of retry a group with some more parts of so many bytes, of which these are there: number,
// text, ….
func (b *bed) group(more, bytes int, parts ...string) {
	b.do("HSET", "msg", idRetry, fmt.Sprintf("\x02%d\x00\x00\x81\x0b%04d%07d\x01\x01a", b.now-7*second, more+1, bytes))
	b.do("HSET", "state", "parts", 1)
	for pair := range slices.Chunk(parts, 2) {
		b.do("HSET", "parts", idRetry+":"+pair[0], pair[1])
	}
}

// emptyReady takes the message out of ready without a trace.
func (b *bed) emptyReady() {
	b.do("DEL", "ready")
	b.do("HDEL", "msg", idReady)
	b.do("HDEL", "fail", idReady)
}

// forget removes what is left of the messages of pending and retry.
func (b *bed) forget() {
	b.do("HDEL", "msg", idPending, idPending2, idRetry)
	b.do("HDEL", "fail", idRetry)
	b.do("HDEL", "key", "order-1")
}

// done makes one message done.
func (b *bed) done() {
	b.endLease()
	b.do("HDEL", "key", "order-4")
	b.do("ZADD", "done", b.now+60*second, idUnack)
	b.do("HSET", "fail", idUnack, fmt.Sprintf("2 0 0 %d ", b.now))
	b.do("HSET", "result", idUnack, "42")
	b.do("HSET", "state", "done", b.now+60*second)
}

func (b *bed) arm(us int64) {
	b.do("ZADD", "wake", us, "w")
	b.do("HSET", "state", "armed", us)
}

// TestBreaches: each breakage is found, at one instant and in pages alike.
func TestBreaches(t *testing.T) {
	onServers(t, func(t *testing.T, cli redis.UniversalClient) {
		for i, c := range slices.Concat(breakages, leaseBreakages, countdownBreakages, laneBreakages) {
			if strings.HasSuffix(t.Name(), "miniredis") && i%testkit.Size(1, 4) != 0 {
				continue // the embedded server is slow, and its reader is the same
			}
			t.Run(c.name, func(t *testing.T) {
				b := build(t, cli, "dq")
				c.make(b)
				s := b.read()
				head := "queue dq:" + t.Name() + ": "
				var want []string
				for _, sentence := range c.want(b) {
					want = append(want, head+sentence)
				}
				if got := s.Breaches(); !slices.Equal(got, want) {
					t.Errorf("breaches:\n%s\nwant:\n%s\nstate:\n%s",
						strings.Join(got, "\n"), strings.Join(want, "\n"), s.Dump())
				}
				_, found, err := Inspect(t.Context(), b.cli, b.q.Prefix, b.q.Name, nil)
				if got := texts(found); err != nil || !slices.Equal(got, s.Breaches()) {
					t.Errorf("in pages:\n%s, %v\nat one instant:\n%s\n%s", strings.Join(got, "\n"), err,
						strings.Join(s.Breaches(), "\n"), s.Dump())
				}
			})
		}
	})
}
