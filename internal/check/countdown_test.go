package check

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/redis/go-redis/v9"
)

// The fields of an envelope of version 2.
const (
	fieldPayload   = 1
	fieldRetries   = 3
	fieldTTL       = 4
	fieldLatest    = 5
	fieldSince     = 6
	fieldParts     = 129
	fieldDeadline  = 130
	fieldTimeout   = 131
	fieldKeyHold   = 132
	fieldRetention = 133
	fieldCountdown = 134
	fieldCounts    = 135
	fieldLane      = 136
)

// fields are an envelope of version 2 from a head and its fields, each a type and a text.
func fields(due int64, key string, all ...any) string {
	b := []byte(fmt.Sprintf("\x02%016d%c%c%s", due, len(key)>>8, 0, key))
	b[18] = byte(len(key))
	for pair := range slices.Chunk(all, 2) {
		text := pair[1].(string)
		b = append(b, byte(pair[0].(int)))
		if len(text) > 127 {
			b = append(b, byte(len(text)&127|128), byte(len(text)>>7))
		} else {
			b = append(b, byte(len(text)))
		}
		b = append(b, text...)
	}
	return string(b)
}

// waits gives the second message of pending the key all and a countdown of n acks, and notes what has counted; "":
// that is not known.
func (b *bed) waits(n int, noted string) {
	b.do("HSET", "msg", idPending2, fields(b.now+61*second, "all", fieldCountdown, fmt.Sprintf("%010d", n), fieldPayload,
		"load"))
	b.do("HSET", "key", "all", idPending2)
	b.do("HSET", "state", "parts", 1)
	if noted != "" {
		b.do("HSET", "parts", idPending2+":0", noted)
	}
}

// stray says that what is noted of the acks of a message is not what it should be.
func stray(id, noted string, countdown int) string {
	return fmt.Sprintf(`parts: the acks of message %s are %q, want how many have counted, a blank and its countdown, %d.`,
		id, noted, countdown)
}

// countdownBreakages are of messages that wait for the acks of others.
var countdownBreakages = []breakage{
	// Countdowns that are sound.
	{"a countdown", func(b *bed) { b.waits(3, "0 3") }, says()},
	{"a countdown of which none is missing", func(b *bed) { b.waits(3, "3 3") }, says()},
	{"a countdown for which more have counted", func(b *bed) { b.waits(3, "5 3") }, says()},
	{"a countdown of garbage", func(b *bed) {
		b.do("HSET", "msg", idGarbage, fields(b.now, "order-6", fieldCountdown, "0000000003", fieldPayload, ""))
		b.do("HSET", "parts", idGarbage+":0", "1 3")
		b.do("HSET", "state", "parts", 1)
	}, says()},
	{"a countdown of what is done", func(b *bed) {
		b.done()
		b.do("HSET", "msg", idUnack, fields(b.now, "order-4", fieldCountdown, "0000000003", fieldPayload, ""))
		b.do("HSET", "parts", idUnack+":0", "3 3")
		b.do("HSET", "state", "parts", 1)
	}, says()},
	{"a countdown of a group", func(b *bed) {
		b.waits(2, "1 2")
		b.do("HSET", "msg", idPending2, fields(b.now+61*second, "all", fieldCountdown, "0000000002", fieldParts,
			"00020000003", fieldPayload, "load"))
		b.do("HSET", "parts", idPending2+":2", "abc")
	}, says()},
	{"what counts for nobody", func(b *bed) {
		b.do("HSET", "msg", idReady, fields(b.now-9*second, "", fieldCounts, "nobody", fieldPayload, "pay 3"))
	}, says()},

	// Numbers that are not.
	{"a number that is not the countdown", func(b *bed) { b.waits(3, "0 4") }, says(stray(idPending2, "0 4", 3))},
	{"one number", func(b *bed) { b.waits(3, "3") }, says(stray(idPending2, "3", 3))},
	{"a number that is missing", func(b *bed) { b.waits(3, "") }, says(
		`parts: message ` + idPending2 + ` has a countdown of 3, and how many acks are missing is not known.`)},
	{"numbers of something else", func(b *bed) {
		b.waits(3, "-1 3")
		b.do("HSET", "msg", idRetry, fields(b.now-7*second, "", fieldCountdown, "0000000003", fieldPayload, ""))
		b.do("HSET", "parts", idRetry+":0", "1.0 3")
	}, says(stray(idPending2, "-1 3", 3), stray(idRetry, "1.0 3", 3))},
	{"a number with a leading zero", func(b *bed) { b.waits(30, "03 30") }, says(stray(idPending2, "03 30", 30))},
	{"an empty number", func(b *bed) { b.waits(3, "0 3"); b.do("HSET", "parts", idPending2+":0", "") },
		says(stray(idPending2, "", 3))},
	{"a number of a message without countdown", func(b *bed) { b.do("HSET", "parts", idPending2+":0", "0 0") },
		says(stray(idPending2, "0 0", 0))},
	{"a number of a group without countdown", func(b *bed) { b.group(2, 3, "2", "abc", "3", "", "0", "1") },
		says(stray(idRetry, "1", 0))},
	{"numbers of nobody", func(b *bed) {
		b.do("HSET", "parts", idNobody+":0", 1, "x:0", 2, "x:y:0", 3)
	}, says(stray(idNobody, "1", 0), stray("x", "2", 0), stray("x:y", "3", 0))},
	{"a number of a message whose envelope is broken", func(b *bed) {
		b.waits(3, "0 3")
		b.do("HSET", "msg", idPending2, fields(b.now+61*second, "all", fieldCountdown, "0000000000", fieldPayload, ""))
	}, says(`msg: the envelope of message ` + idPending2 + ` is malformed: broken envelope: 36 bytes of version 2.`)},
	{"a countdown that is not noted", func(b *bed) {
		b.do("HSET", "msg", idRetry, fields(b.now-7*second, "", fieldCountdown, "0000000003", fieldPayload, ""))
		b.do("HSET", "parts", idRetry+":0", "0 3")
	}, says(`state: field parts is not set, but there are messages with a countdown, of which nobody would know.`)},
}

// longest is the longest head of an envelope with a message key: each field has as many bytes as its bounds allow.
// parts is field 129.
func longest(due int64, key, counts, parts string) string {
	instant := fmt.Sprintf("%016d", maxInstant-1)
	uvarint := func(n int) string { return strings.Repeat("\xff", n-1) + "\x7f" }
	return fields(due, key, fieldLane, "001"+strings.Repeat("l", message.MaxLane), fieldCounts, counts, fieldCountdown,
		fmt.Sprint(message.MaxCountdown),
		fieldRetention, uvarint(7), fieldKeyHold, uvarint(7),
		fieldTimeout, uvarint(9), fieldDeadline, instant, fieldParts, parts, fieldSince, instant, fieldLatest, instant,
		fieldTTL, uvarint(9),
		fieldRetries, uvarint(5), fieldPayload, strings.Repeat("x", 5000))
}

// TestLongestHead: what Inspect reads of an envelope by pages, and by its looks at suspects, holds all fields but
// headers and payload, also of a group that has a countdown, counts, and has or had a message key, if these keys are
// as long as they may be.
func TestLongestHead(t *testing.T) {
	long := func(c string) string { return strings.Repeat(c, message.MaxKey) }
	onServers(t, func(t *testing.T, cli redis.UniversalClient) {
		for name, c := range map[string]struct{ key, parts, left string }{
			"with its key":      {long("k"), "00020000003", ""},
			"that left its key": {"", "00020000003" + long("g"), long("g")},
		} {
			t.Run(name, func(t *testing.T) {
				b := build(t, cli, "dq")
				raw := longest(b.now+61*second, c.key, long("c"), c.parts)
				b.do("HSET", "msg", idPending2, raw)
				b.do("HSET", "parts", idPending2+":2", "abc", idPending2+":0", fmt.Sprint("0 ", message.MaxCountdown))
				b.do("HSET", "state", "parts", 1, "big", 1<<20)
				b.do("ZADD", "lanes", 0, turnOf(strings.Repeat("l", message.MaxLane), idPending2, "001"))
				if c.left == "" {
					b.do("HSET", "key", c.key, idPending2)
				} else {
					b.do("HSET", "parts", ":"+c.left, idPending2)
				}
				b.sound(raw)
				b.do("HSET", "parts", idPending2+":0", fmt.Sprint("0 ", message.MaxCountdown+1))
				b.do("HDEL", "parts", idPending2+":2")
				b.found(stray(idPending2, fmt.Sprint("0 ", message.MaxCountdown+1), message.MaxCountdown),
					`parts: group `+idPending2+` has 2 parts, with 3 bytes besides the first, and of these 0 are there, with 0.`)
			})
		}
	})
}

// sound wants a queue without breaches, and the envelope of idPending2 to be read by pages and by a look as it is
// read at one instant.
func (b *bed) sound(raw string) {
	b.t.Helper()
	b.found()
	want := decodeEnvelope(raw, len(raw))
	if want.Problem != "" {
		b.t.Fatal(want.Problem)
	}
	want.Headers, want.Payload = nil, ""
	s, _, err := Inspect(b.t.Context(), b.cli, b.q.Prefix, b.q.Name, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	p := &pager{cli: b.cli, state: s}
	look, err := p.probe(b.t.Context(), []suspect{{id: idPending2}})
	if err != nil {
		b.t.Fatal(err)
	}
	atOnce := b.read()
	for by, got := range map[string]*State{"pages": s, "a look": look} {
		if e := got.Messages[idPending2]; !reflect.DeepEqual(e, want) {
			b.t.Errorf("by %s: %+v, want %+v", by, e, want)
		}
		if !reflect.DeepEqual(got.Missing, atOnce.Missing) || !reflect.DeepEqual(got.Parts, atOnce.Parts) ||
			!reflect.DeepEqual(got.Left, atOnce.Left) {
			b.t.Errorf("by %s: %v, %v and %v, want %v, %v and %v", by, got.Missing, got.Parts, got.Left, atOnce.Missing,
				atOnce.Parts, atOnce.Left)
		}
	}
}

// found wants these breaches at one instant, and the same by pages.
func (b *bed) found(sentences ...string) {
	b.t.Helper()
	for i, sentence := range sentences {
		sentences[i] = fmt.Sprintf("queue %s:%s: %s", b.q.Prefix, b.q.Name, sentence)
	}
	slices.Sort(sentences)
	_, found, err := Inspect(b.t.Context(), b.cli, b.q.Prefix, b.q.Name, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for by, got := range map[string][]string{"at one instant": b.read().Breaches(), "by pages": texts(found)} {
		if slices.Sort(got); !slices.Equal(got, sentences) {
			b.t.Errorf("%s:\n%s\nwant:\n%s", by, strings.Join(got, "\n"), strings.Join(sentences, "\n"))
		}
	}
}
