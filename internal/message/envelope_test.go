package message

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sampleEnvelopes holds one of each kind.
func sampleEnvelopes() map[string]Envelope {
	var all strings.Builder
	for i := range 256 {
		all.WriteByte(byte(i))
	}
	headers := map[string]string{"": "", "empty": "", "long": strings.Repeat("v", 300), all.String(): all.String()}
	for i := range 200 {
		headers["h"+strconv.Itoa(i)] = strconv.Itoa(i)
	}
	return map[string]Envelope{
		"least":        {Due: 1},
		"payload":      {Due: 1_717_200_000_000_000, Retries: 3, Payload: "hello"},
		"every byte":   {Due: 1_717_200_000_000_000, Key: all.String(), Payload: all.String()},
		"key":          {Due: 9_999_999_999_999_999, Key: "order-42", Payload: "x"},
		"longest key":  {Due: 12, Key: strings.Repeat("k", 512), Retries: 1 << 20},
		"most retries": {Due: 12, Retries: math.MaxInt32, Payload: "x"},
		"ttl":          {Due: 12, Retries: 127, TTL: time.Microsecond},
		"longest ttl":  {Due: 12, Retries: 128, TTL: math.MaxInt64 / 1000 * time.Microsecond, Payload: "x"},
		"headers":      {Due: 12, Headers: map[string]string{"trace": "1", "": "no name"}, Payload: "x"},
		"many headers": {Due: 12, Headers: headers},
		"all of it": {Due: 1_717_200_000_000_000, Key: "k", Retries: 300, TTL: time.Hour, Headers: headers,
			Payload: all.String()},
		"deadline":        {Due: 12, Retries: 3, Deadline: 1<<53 - 1},
		"timeout":         {Due: 12, Retries: 3, Timeout: time.Microsecond, Payload: "x"},
		"longest timeout": {Due: 12, Timeout: math.MaxInt64 / 1000 * time.Microsecond},
		"since":           {Due: 12, Retries: 3, TTL: time.Hour, Since: 1<<53 - 1, Latest: 9, Key: "s"},
		"latest":          {Due: 12, Retries: 3, TTL: time.Hour, Latest: 1<<53 - 1, Key: "l"},
		"key hold":        {Due: 12, Retries: 3, Latest: 7, KeyHold: 365 * 24 * time.Hour, Key: "m", Payload: "x"},
		"group":           {Due: 12, Retries: 3, Key: "g", Group: Group{Count: 1}, Payload: "x"},
		"full group": {Due: 12, Retries: 3, Group: Group{Count: MaxParts, Bytes: 5, Key: strings.Repeat("k", 512)},
			Latest: 7, Deadline: 8, Payload: "x"},
		"lane": {Due: 12, Retries: 3, Lane: Lane{"customer-42", 1}, Payload: "x"},
		"longest lane": {Due: 12, Key: "k", Lane: Lane{strings.Repeat("\xff", MaxLane), MaxWidth}, Counts: "all",
			Countdown: 2},
		"countdown":         {Due: 12, Key: "all", Countdown: 1, Payload: "x"},
		"longest countdown": {Due: 12, Key: "all", Countdown: MaxCountdown},
		"counts":            {Due: 12, Retries: 3, Counts: "all", Payload: "x"},
		"counts for the longest key, of every byte": {Due: 12, Key: strings.Repeat("k", 512),
			Counts: all.String() + all.String()},
		"a group that waits, and counts itself": {Due: 12, Retries: 3, Key: strings.Repeat("k", 512), Countdown: 3,
			Counts: strings.Repeat("c", 512),
			Group:  Group{Count: 2, Bytes: 5}, Payload: "x"},
		"retention":  {Due: 12, Retries: 3, Retention: 90 * 24 * time.Hour, Payload: "x"},
		"no timeout": {Due: 12, Retries: 3, Timeout: NoTimeout, Payload: "x"},
		"all fields": {Due: 1_717_200_000_000_000, Key: "fields", Retries: 300, TTL: time.Hour, Headers: headers,
			Payload:  all.String(),
			Deadline: 1_717_200_000_000_001, Timeout: time.Minute, Retention: time.Second, KeyHold: time.Hour, Countdown: 42,
			Counts: "others"},
		"a long payload": {Due: 1, Payload: strings.Repeat("0123456789", 100_000)},
	}
}

func TestEnvelope(t *testing.T) {
	for name, want := range sampleEnvelopes() {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeEnvelope(want.Encode(When{Us: want.Due, Absolute: true}))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

// TestEnvelopeHead: the bytes before a payload say all but the headers, and fewer bytes say nothing that is wrong.
func TestEnvelopeHead(t *testing.T) {
	const payload = 1000 // bytes
	for name, want := range sampleEnvelopes() {
		want.Payload = strings.Repeat("p", payload)
		for _, raw := range []string{want.Encode(When{Us: want.Due, Absolute: true}),
			want.inFields(map[byte]string{9: name})} {
			bare := want
			bare.Headers, bare.Payload = nil, ""
			for _, n := range []int{len(raw), len(raw) - payload} {
				if got, err := DecodeHead(raw[:n]); err != nil || !reflect.DeepEqual(got, bare) {
					t.Errorf("%s, %d of %d bytes: %+v, %v; want %+v", name, n, len(raw), got, err, bare)
				}
			}
			for n := range len(raw) - payload {
				got, err := DecodeHead(raw[:n])
				if least := EnvelopeHead + 2 + len(want.Key); (err == nil) != (n >= least && raw[0] == fieldsVersion) &&
					n <= least {
					t.Fatalf("%s, %d of %d bytes: %+v, %v", name, n, len(raw), got, err)
				}
				if err == nil && (got.Due != want.Due || got.Key != want.Key || got.TTL != 0 && got.TTL != want.TTL ||
					got.Retries != 0 && got.Retries != want.Retries || got.Headers != nil || got.Payload != "") {
					t.Fatalf("%s, %d of %d bytes: %+v", name, n, len(raw), got)
				}
			}
		}
	}
	if e, err := DecodeHead("\x021717200000000000\x00\x01k\x80\x00\x01"); !errors.Is(err, ErrNewerVersion) ||
		e.Key != "k" {
		t.Errorf("with a field that must be known: %+v, %v", e, err)
	}
}

// TestEnvelopeCutShort: nothing that lacks a part of its head, key, options or headers is read.
func TestEnvelopeCutShort(t *testing.T) {
	e := sampleEnvelopes()["all of it"]
	e.Payload = ""
	whole := e.Encode(When{Us: e.Due, Absolute: true})
	for n := range len(whole) {
		if got, err := DecodeEnvelope(whole[:n]); !errors.Is(err, errBadEnvelope) || errors.Is(err, ErrNewerVersion) {
			t.Fatalf("%d of %d bytes: %+v, %v", n, len(whole), got, err)
		}
	}
	if _, err := DecodeEnvelope(whole); err != nil {
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
		"version 3":                     {"\x031717200000000000\x00\x00\x00\x03x", ErrNewerVersion},
		"version 3 with other contents": {"\x031717200000000000" + strings.Repeat("?", 40), ErrNewerVersion},
		"version 3 with a key":          {"\x031717200000000000\x00\x01k\xff", ErrNewerVersion},
		"foreign text":                  {"some text that another program has left here", errBadEnvelope},
		"version 255":                   {"\xff1717200000000000\x00\x00\x00\x03x", ErrNewerVersion},
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
		"a header of 2^63 bytes": {head + "\x00\x00\x02\x03\x01" + string(binary.AppendUvarint(nil, 1<<63)) + "a",
			errBadEnvelope},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := DecodeEnvelope(c.raw)
			if !errors.Is(err, c.want) {
				t.Errorf("%+v, %v; want %v", e, err, c.want)
			}
			if errors.Is(err, errBadEnvelope) && errors.Is(err, ErrNewerVersion) {
				t.Errorf("%v is both", err)
			}
			var beside Envelope
			if errors.Is(err, ErrNewerVersion) { // what every version begins with is kept
				beside.Due = 1717200000000000
				if name == "version 3 with a key" {
					beside.Key = "k"
				}
			}
			if !reflect.DeepEqual(e, beside) {
				t.Errorf("beside the error: %+v", e)
			}
		})
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, e := range sampleEnvelopes() {
		if raw := e.Encode(When{Us: e.Due, Absolute: true}); len(raw) < 10_000 {
			f.Add(raw)
			f.Add(raw[:len(raw)/2])
			f.Add(e.inFields(map[byte]string{9: "other"}))
		}
	}
	f.Add("\x011717200000000000\x00\x00\x02\x03\x02\x01a\x01b\x01a\x01c")
	f.Fuzz(func(t *testing.T, raw string) {
		e, err := DecodeEnvelope(raw)
		if err != nil {
			if !errors.Is(err, errBadEnvelope) && !errors.Is(err, ErrNewerVersion) {
				t.Fatalf("unknown error %v", err)
			}
			return
		}
		if e.Due < 0 || e.Retries < 0 || e.TTL < 0 || len(e.Payload) > len(raw) {
			t.Fatalf("decoded %+v", e)
		}
		again, err := DecodeEnvelope(e.Encode(When{Us: e.Due, Absolute: true}))
		if len(e.Headers) == 0 {
			e.Headers = nil
		}
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("encoded anew: %+v, %v; want %+v", again, err, e)
		}
		if again, err = DecodeEnvelope(e.inFields(nil)); err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("in fields: %+v, %v; want %+v", again, err, e)
		}
		if again.Encode(When{Us: again.Due, Absolute: true}) != e.Encode(When{Us: e.Due, Absolute: true}) {
			t.Fatal("encoding is not stable")
		}
	})
}

// TestTooManyHeaders: a reader makes no map of millions.
func TestTooManyHeaders(t *testing.T) {
	e := Envelope{Due: 1, Headers: map[string]string{}}
	for i := range MaxHeaders {
		e.Headers[strconv.Itoa(i)] = ""
	}
	w := When{Us: 1, Absolute: true}
	if got, err := DecodeEnvelope(e.Encode(w)); err != nil || len(got.Headers) != MaxHeaders {
		t.Errorf("%d headers: %d, %v", MaxHeaders, len(got.Headers), err)
	}
	e.Headers["one more"] = ""
	if _, err := DecodeEnvelope(e.Encode(w)); !errors.Is(err, errBadEnvelope) {
		t.Errorf("one more: %v", err)
	}
}
