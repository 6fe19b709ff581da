package delayqueue

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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
		"least":          {due: 1},
		"payload":        {due: 1_717_200_000_000_000, retries: 3, payload: "hello"},
		"every byte":     {due: 1_717_200_000_000_000, key: all.String(), payload: all.String()},
		"key":            {due: 9_999_999_999_999_999, key: "order-42", payload: "x"},
		"longest key":    {due: 12, key: strings.Repeat("k", maxKey), retries: 1 << 20},
		"most retries":   {due: 12, retries: math.MaxInt32, payload: "x"},
		"ttl":            {due: 12, retries: 127, ttl: time.Microsecond},
		"longest ttl":    {due: 12, retries: 128, ttl: math.MaxInt64 / 1000 * time.Microsecond, payload: "x"},
		"headers":        {due: 12, headers: map[string]string{"trace": "1", "": "no name"}, payload: "x"},
		"many headers":   {due: 12, headers: headers},
		"all of it":      {due: 1_717_200_000_000_000, key: "k", retries: 300, ttl: time.Hour, headers: headers, payload: all.String()},
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
	onBoth(t, func(r *rig) {
		sent := map[string]envelope{}
		for name, e := range sampleEnvelopes() {
			m := msgAt(strconv.Itoa(len(sent)), time.Duration(len(name))*time.Second, func(to *envelope) { *to = e })
			e.due = m.when.us
			sent[m.id] = e
			r.put(m)
		}
		for id, got := range r.read().Messages {
			want := sent[id]
			if got.Problem != "" || got.Due != want.due || got.Key != want.key || got.Retries != int64(want.retries) ||
				got.TTL != want.ttl.Microseconds() || got.Payload != want.payload || !maps.Equal(got.Headers, want.headers) {
				t.Errorf("stored %+v, want %+v", got, want)
			}
		}
	})
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
	want := check.Envelope{Version: 1, Due: info.Due.UnixMicro(), Key: info.Key, Flags: flagTTL | flagHeaders, TTL: 90e6,
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
		"version 2":                     {"\x021717200000000000\x00\x00\x00\x03x", errNewerVersion},
		"version 2 with other contents": {"\x021717200000000000" + strings.Repeat("?", 40), errNewerVersion},
		"version 2 with a key":          {"\x021717200000000000\x00\x01k\xff", errNewerVersion},
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
				if name == "version 2 with a key" {
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
		if again.encode(when{us: again.due, absolute: true}) != e.encode(when{us: e.due, absolute: true}) {
			t.Fatal("encoding is not stable")
		}
	})
}

func TestTag(t *testing.T) {
	const id = "0190f3a0-0000-7000-8000-000000000001"
	for n, want := range map[int]string{1: id, 2: "2:" + id, 9: "9:" + id, 10: "10:" + id, 12345: "12345:" + id, 999_999_999: "999999999:" + id} {
		if tag := tagOf(id, n); tag != want {
			t.Errorf("delivery %d is %q, want %q", n, tag, want)
		}
		if gotID, got := splitTag(want); gotID != id || got != n {
			t.Errorf("%q is delivery %d of %q", want, got, gotID)
		}
	}
	for _, tag := range []string{":" + id, "1:" + id, "0:" + id, "-2:" + id, "+2:" + id, "02:" + id, "x:" + id, "2.0:" + id, " 2:" + id, "2 :" + id,
		"1e3:" + id, "0x2:" + id, "2_0:" + id, "1000000000:" + id, "2:", ":"} {
		if id, n := splitTag(tag); id != tag || n != 1 {
			t.Errorf("%q is delivery %d of %q, want the first of one with that name", tag, n, id)
		}
	}
}

func FuzzTag(f *testing.F) {
	for _, tag := range []string{"a", "2:a", "10:a:b", ":", "02:a", "1:a", "-1:a", "+2:a", "2:"} {
		f.Add(tag)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		id, n := splitTag(tag)
		if n < 1 || tagOf(id, n) != tag {
			t.Fatalf("%q is delivery %d of %q, whose tag is %q", tag, n, id, tagOf(id, n))
		}
	})
}

func TestFail(t *testing.T) {
	for raw, want := range map[string]failRecord{
		"2 0 0 1717200000000000 ":              {delivery: 2, when: 1_717_200_000_000_000},
		"3 1 2 1717200000000000 boom":          {3, 1, 2, 1_717_200_000_000_000, "boom"},
		"12 11 0 1717200000000000  a b  c\n\"": {12, 11, 0, 1_717_200_000_000_000, " a b  c\n\""},
		"1 0 0 1 1 2 3":                        {1, 0, 0, 1, "1 2 3"},
	} {
		if got, err := parseFail(raw); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{"", " ", "2", "2 0 0 1717200000000000", "x 0 0 1 ", "2 x 0 1 ", "2 0 x 1 ", "2 0 0 x ", "2  0 0 1 ",
		"2 0 0 1.7172e+15 boom", "2.5 0 0 1 ", "99999999999999999999 0 0 1 "} {
		if got, err := parseFail(raw); err == nil {
			t.Errorf("%q is %+v, want an error", raw, got)
		}
	}
}

func TestErrorText(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":                  {"", ""},
		"plain":                  {"boom", "boom"},
		"many bytes to a letter": {"größer → 語", "größer → 語"},
		"not UTF-8":              {"a\xff\xfeb\x00", "a\uFFFDb\x00"},
		"half a letter":          {"a\xe8\xaa", "a\uFFFD"},
		"as long as allowed":     {strings.Repeat("x", maxErrorText), strings.Repeat("x", maxErrorText)},
		"too long":               {strings.Repeat("x", maxErrorText+1), strings.Repeat("x", maxErrorText)},
		"cut within a letter":    {strings.Repeat("語", maxErrorText), strings.Repeat("語", maxErrorText/3)},
		"cut behind a letter":    {"x" + strings.Repeat("語", maxErrorText), "x" + strings.Repeat("語", maxErrorText/3)},
		"long and not UTF-8":     {strings.Repeat("\xff", 5) + strings.Repeat("é", 2*maxErrorText), "\uFFFD" + strings.Repeat("é", (maxErrorText-3)/2)},
	} {
		t.Run(name, func(t *testing.T) {
			got := errorText(errors.New(c.text))
			if got != c.want || !utf8.ValidString(got) || len(got) > maxErrorText {
				t.Errorf("%d bytes %.60q, want %d bytes %.60q", len(got), got, len(c.want), c.want)
			}
		})
	}
}

func TestStateString(t *testing.T) {
	for s, want := range map[State]string{StateGone: "gone", StatePending: "pending", StateReady: "ready", StateUnack: "unack", StateRetry: "retry",
		StateGarbage: "garbage", 6: "State(6)", -1: "State(-1)", math.MaxInt: "State(9223372036854775807)"} {
		if got := s.String(); got != want {
			t.Errorf("%d is %q, want %q", int(s), got, want)
		}
	}
	var zero InterceptResult
	if zero.State != StateGone || zero.Intercepted {
		t.Errorf("the zero value is %+v", zero)
	}
}

// tagOf names delivery n of a message: the id itself for the first, <n>:<id> from the second on.
func tagOf(id string, n int) string {
	if n == 1 {
		return id
	}
	return strconv.Itoa(n) + ":" + id
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
