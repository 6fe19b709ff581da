package delayqueue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

// sampleEnvelopes holds one of each kind.
func sampleEnvelopes() map[string]envelope {
	var all strings.Builder
	for i := range 256 {
		all.WriteByte(byte(i))
	}
	headers := map[string]string{"": "", "empty": "", "long": strings.Repeat("v", 300), all.String(): all.String()}
	for i := range 200 {
		headers["h"+strconv.Itoa(i)] = strconv.Itoa(i)
	}
	return map[string]envelope{
		"least":           {due: 1},
		"payload":         {due: 1_717_200_000_000_000, retries: 3, payload: "hello"},
		"every byte":      {due: 1_717_200_000_000_000, key: all.String(), payload: all.String()},
		"key":             {due: 9_999_999_999_999_999, key: "order-42", payload: "x"},
		"longest key":     {due: 12, key: strings.Repeat("k", maxKey), retries: 1 << 20},
		"most retries":    {due: 12, retries: math.MaxInt32, payload: "x"},
		"ttl":             {due: 12, retries: 127, ttl: time.Microsecond},
		"longest ttl":     {due: 12, retries: 128, ttl: math.MaxInt64 / 1000 * time.Microsecond, payload: "x"},
		"headers":         {due: 12, headers: map[string]string{"trace": "1", "": "no name"}, payload: "x"},
		"many headers":    {due: 12, headers: headers},
		"all of it":       {due: 1_717_200_000_000_000, key: "k", retries: 300, ttl: time.Hour, headers: headers, payload: all.String()},
		"deadline":        {due: 12, retries: 3, deadline: 1<<53 - 1},
		"timeout":         {due: 12, retries: 3, timeout: time.Microsecond, payload: "x"},
		"longest timeout": {due: 12, timeout: math.MaxInt64 / 1000 * time.Microsecond},
		"since":           {due: 12, retries: 3, ttl: time.Hour, since: 1<<53 - 1, latest: 9, key: "s"},
		"latest":          {due: 12, retries: 3, ttl: time.Hour, latest: 1<<53 - 1, key: "l"},
		"key hold":        {due: 12, retries: 3, latest: 7, keyHold: maxKeyHold, key: "m", payload: "x"},
		"group":           {due: 12, retries: 3, key: "g", group: group{count: 1}, payload: "x"},
		"full group": {due: 12, retries: 3, group: group{count: maxParts, bytes: 5, key: strings.Repeat("k", maxKey)},
			latest: 7, deadline: 8, payload: "x"},
		"retention":  {due: 12, retries: 3, retention: maxRetention, payload: "x"},
		"no timeout": {due: 12, retries: 3, timeout: noTimeout, payload: "x"},
		"all fields": {due: 1_717_200_000_000_000, key: "fields", retries: 300, ttl: time.Hour, headers: headers, payload: all.String(),
			deadline: 1_717_200_000_000_001, timeout: time.Minute, retention: time.Second},
		"a long payload": {due: 1, payload: strings.Repeat("0123456789", 100_000)},
	}
}

func TestEnvelope(t *testing.T) {
	for name, want := range sampleEnvelopes() {
		t.Run(name, func(t *testing.T) {
			got, err := decodeEnvelope(want.encode(when{us: want.due, absolute: true}))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

// TestEnvelopeInRedis: what is stored says the same to the checker's own decoder.
func TestEnvelopeInRedis(t *testing.T) {
	t.Parallel()
	t.Run("version 1", func(t *testing.T) { onBoth(t, func(r *rig) { storesEnvelopes(r, false) }) })
	t.Run("version 2", func(t *testing.T) { onBoth(t, func(r *rig) { storesEnvelopes(r, true) }) })
}

func storesEnvelopes(r *rig, fields bool) {
	sent := map[string]envelope{}
	for name, e := range sampleEnvelopes() {
		m := msgAt(strconv.Itoa(len(sent)), time.Duration(len(name))*time.Second, func(to *envelope) { *to = e })
		e.due = m.when.us
		sent[m.id] = e
		if fields {
			m.text = e.inFields(map[byte]string{9: name})
		}
		r.put(m)
		if e.group.key != "" {
			r.do("HSET", r.keys.parts, ":"+e.group.key, m.id)
			r.do("HSET", r.keys.state, "parts", 1)
		}
		for n := 2; n <= e.group.count; n++ {
			r.do("HSET", r.keys.parts, fmt.Sprint(m.id, ":", n), strings.Repeat("p", e.group.bytes*max(3-n, 0)))
			r.do("HSET", r.keys.state, "parts", 1)
		}
	}
	for id, got := range r.read().Messages {
		want := sent[id]
		if got.Problem != "" || got.Due != want.due || got.Key != want.key || got.Retries != int64(want.retries) ||
			got.TTL != want.ttl.Microseconds() || got.Deadline != want.deadline || got.Timeout != want.timeout.Microseconds() ||
			got.Parts != int64(want.group.count) || got.PartBytes != int64(want.group.bytes) || got.GroupKey != want.group.key ||
			got.Payload != want.payload || !maps.Equal(got.Headers, want.headers) {
			r.t.Errorf("stored %+v, want %+v", got, want)
		}
	}
}

// TestEnvelopeOfSend goes all the way through the options.
func TestEnvelopeOfSend(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	info, err := q.Send(context.Background(), "\x00payload\xff", WithKey(strings.Repeat("k", maxKey)), WithDelay(time.Hour), WithRetryCount(7),
		WithMsgTTL(90*time.Second), WithHeader("a", "1"), WithHeader("b", ""))
	if err != nil {
		t.Fatal(err)
	}
	got := f.check().Messages[info.ID]
	want := check.Envelope{Version: 2, Due: info.Due.UnixMicro(), Key: info.Key, TTL: 90e6, Since: latestUnknown,
		Headers: map[string]string{"a": "1", "b": ""}, Retries: 7, Payload: "\x00payload\xff", Size: got.Size}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("stored %+v, want %+v", got, want)
	}
}

func TestEnvelopeIsTheSameEachTime(t *testing.T) {
	e := sampleEnvelopes()["all of it"]
	first := e.encode(when{us: e.due, absolute: true})
	for range 20 {
		if e.encode(when{us: e.due, absolute: true}) != first {
			t.Fatal("headers come in another order each time: a repeated send would differ")
		}
	}
}

// TestEnvelopeCutShort: nothing that lacks a part of its head, key, options or headers is read.
func TestEnvelopeCutShort(t *testing.T) {
	e := sampleEnvelopes()["all of it"]
	e.payload = ""
	whole := e.encode(when{us: e.due, absolute: true})
	for n := range len(whole) {
		if got, err := decodeEnvelope(whole[:n]); !errors.Is(err, errBadEnvelope) || errors.Is(err, errNewerVersion) {
			t.Fatalf("%d of %d bytes: %+v, %v", n, len(whole), got, err)
		}
	}
	if _, err := decodeEnvelope(whole); err != nil {
		t.Errorf("all of it: %v", err)
	}
}

func TestEnvelopeBroken(t *testing.T) {
	const head = "\x011717200000000000"
	endless := strings.Repeat("\xff", 11)
	for name, c := range map[string]struct {
		raw  string
		want error
	}{
		"empty":                         {"", errBadEnvelope},
		"version 0":                     {"\x001717200000000000\x00\x00\x00\x03x", errBadEnvelope},
		"version 3":                     {"\x031717200000000000\x00\x00\x00\x03x", errNewerVersion},
		"version 3 with other contents": {"\x031717200000000000" + strings.Repeat("?", 40), errNewerVersion},
		"version 3 with a key":          {"\x031717200000000000\x00\x01k\xff", errNewerVersion},
		"foreign text":                  {"some text that another program has left here", errBadEnvelope},
		"version 255":                   {"\xff1717200000000000\x00\x00\x00\x03x", errNewerVersion},
		"due of letters":                {"\x01171720000000000x\x00\x00\x00\x03x", errBadEnvelope},
		"due below zero":                {"\x01-717200000000000\x00\x00\x00\x03x", errBadEnvelope},
		"due with a plus":               {"\x01+717200000000000\x00\x00\x00\x03x", errBadEnvelope},
		"due with an underscore":        {"\x011_17200000000000\x00\x00\x00\x03x", errBadEnvelope},
		"due in Lua's own style":        {"\x01     1.7172e+15 \x00\x00\x00\x03x", errBadEnvelope},
		"key longer than the rest":      {head + "\x00\x05abc", errBadEnvelope},
		"no flags":                      {head + "\x00\x00", errBadEnvelope},
		"unknown flag":                  {head + "\x00\x00\x04\x03x", errBadEnvelope},
		"all flags":                     {head + "\x00\x00\xff\x03x", errBadEnvelope},
		"no retries":                    {head + "\x00\x00\x00", errBadEnvelope},
		"half a number":                 {head + "\x00\x00\x00\x80", errBadEnvelope},
		"an endless number":             {head + "\x00\x00\x00" + endless, errBadEnvelope},
		"no ttl":                        {head + "\x00\x00\x01\x03", errBadEnvelope},
		"no headers":                    {head + "\x00\x00\x02\x03", errBadEnvelope},
		"fewer headers than said":       {head + "\x00\x00\x02\x03\x02\x01a\x01b", errBadEnvelope},
		"far fewer headers than said":   {head + "\x00\x00\x02\x03\xff\xff\xff\xff\xff\xff\xff\xff\x7f", errBadEnvelope},
		"a header longer than the rest": {head + "\x00\x00\x02\x03\x01\x7fa", errBadEnvelope},
		"a header of 2^63 bytes":        {head + "\x00\x00\x02\x03\x01" + string(binary.AppendUvarint(nil, 1<<63)) + "a", errBadEnvelope},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := decodeEnvelope(c.raw)
			if !errors.Is(err, c.want) {
				t.Errorf("%+v, %v; want %v", e, err, c.want)
			}
			if errors.Is(err, errBadEnvelope) && errors.Is(err, errNewerVersion) {
				t.Errorf("%v is both", err)
			}
			var beside envelope
			if errors.Is(err, errNewerVersion) { // what every version begins with is kept
				beside.due = 1717200000000000
				if name == "version 3 with a key" {
					beside.key = "k"
				}
			}
			if !reflect.DeepEqual(e, beside) {
				t.Errorf("beside the error: %+v", e)
			}
		})
	}
}

// TestEnvelopeBitFlips: one wrong bit anywhere is an error or another envelope, no panic.
func TestEnvelopeBitFlips(t *testing.T) {
	e := sampleEnvelopes()["all of it"]
	e.headers = map[string]string{"a": "1", "b": ""}
	whole := []byte(e.encode(when{us: e.due, absolute: true}))
	for i := range whole {
		for bit := range 8 {
			whole[i] ^= 1 << bit
			got, err := decodeEnvelope(string(whole))
			if err == nil && reflect.DeepEqual(got, e) {
				t.Errorf("bit %d of byte %d means nothing", bit, i)
			}
			if err != nil && !errors.Is(err, errBadEnvelope) && !errors.Is(err, errNewerVersion) {
				t.Errorf("bit %d of byte %d: %v", bit, i, err)
			}
			whole[i] ^= 1 << bit
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, e := range sampleEnvelopes() {
		if raw := e.encode(when{us: e.due, absolute: true}); len(raw) < 10_000 {
			f.Add(raw)
			f.Add(raw[:len(raw)/2])
			f.Add(e.inFields(map[byte]string{9: "other"}))
		}
	}
	f.Add("\x011717200000000000\x00\x00\x02\x03\x02\x01a\x01b\x01a\x01c")
	f.Fuzz(func(t *testing.T, raw string) {
		e, err := decodeEnvelope(raw)
		if err != nil {
			if !errors.Is(err, errBadEnvelope) && !errors.Is(err, errNewerVersion) {
				t.Fatalf("unknown error %v", err)
			}
			return
		}
		if e.due < 0 || e.retries < 0 || e.ttl < 0 || len(e.payload) > len(raw) {
			t.Fatalf("decoded %+v", e)
		}
		again, err := decodeEnvelope(e.encode(when{us: e.due, absolute: true}))
		if len(e.headers) == 0 {
			e.headers = nil
		}
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("encoded anew: %+v, %v; want %+v", again, err, e)
		}
		if again, err = decodeEnvelope(e.inFields(nil)); err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("in fields: %+v, %v; want %+v", again, err, e)
		}
		if again.encode(when{us: again.due, absolute: true}) != e.encode(when{us: e.due, absolute: true}) {
			t.Fatal("encoding is not stable")
		}
	})
}

// TestTooManyHeaders: neither a sender nor a reader makes a map of millions.
func TestTooManyHeaders(t *testing.T) {
	e := envelope{due: 1, headers: map[string]string{}}
	for i := range maxHeaders {
		e.headers[strconv.Itoa(i)] = ""
	}
	w := when{us: 1, absolute: true}
	if got, err := decodeEnvelope(e.encode(w)); err != nil || len(got.headers) != maxHeaders {
		t.Errorf("%d headers: %d, %v", maxHeaders, len(got.headers), err)
	}
	e.headers["one more"] = ""
	if _, err := decodeEnvelope(e.encode(w)); !errors.Is(err, errBadEnvelope) {
		t.Errorf("one more: %v", err)
	}
	d := draft{envelope: e}
	if err := WithHeader("and one", "")(&d); !errors.Is(err, ErrBadOption) {
		t.Errorf("sent: %v", err)
	}
}
