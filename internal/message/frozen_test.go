package message

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// frozen are envelopes byte for byte. Redis holds messages that an older release has written, so a line may be added
// in this file, and none may change. internal/check reads by this package, so nothing else would see a change.
var frozen = map[string]struct {
	raw  string
	want Envelope
}{
	"version 1": {"\x011790000000000000\x00\x08order-42\x03\x03\x80\x8c\x8d\x9e\x02\x01\x05trace\x047f3aclose",
		Envelope{Due: 1790000000000000, Key: "order-42", Retries: 3, TTL: 10 * time.Minute,
			Headers: map[string]string{"trace": "7f3a"}, Payload: "close"}},
	"version 1 with nothing": {"\x010000000000000001\x00\x00\x00\x00", Envelope{Due: 1}},
	"version 2": {"\x021790000000000000\x00\x01k" + "\x85\x03\xc0\x84\x3d" + "\x84\x04\x80\x87\xa7\x0e" + "\x83\x01\x07" +
		"\x82\x101790000000000009" +
		"\x06\x101790000000000008" + "\x05\x101790000000000007" + "\x04\x01\x05" + "\x03\x02\xac\x02" +
		"\x02\x05\x01\x01a\x01b" + "\x01\x04load",
		Envelope{Due: 1790000000000000, Key: "k", Retries: 300, TTL: 5 * time.Microsecond, Since: 1790000000000008,
			Latest:   1790000000000007,
			Deadline: 1790000000000009, Timeout: 7 * time.Microsecond, KeyHold: 30 * time.Second, Retention: time.Second,
			Headers: map[string]string{"a": "b"}, Payload: "load"}},
	"no timeout": {"\x021790000000000000\x00\x00\x83\x01\x00\x01\x00",
		Envelope{Due: 1790000000000000, Timeout: NoTimeout}},
	"a group": {"\x021790000000000000\x00\x01g\x81\x0b00120000345\x01\x05first",
		Envelope{Due: 1790000000000000, Key: "g", Group: Group{Count: 12, Bytes: 345}, Payload: "first"}},
	"a group that left its key": {"\x021790000000000000\x00\x00\x81\x0c00010000000g\x01\x00",
		Envelope{Due: 1790000000000000, Group: Group{Count: 1, Key: "g"}}},
	"a countdown": {"\x021790000000000000\x00\x03all\x86\x0a0000000300\x03\x01\x03\x01\x04done",
		Envelope{Due: 1790000000000000, Key: "all", Countdown: 300, Retries: 3, Payload: "done"}},
	"the longest countdown": {"\x021790000000000000\x00\x03all\x86\x0a1000000000\x01\x00",
		Envelope{Due: 1790000000000000, Key: "all", Countdown: 1_000_000_000}},
	"counts": {"\x021790000000000000\x00\x00\x87\x03all\x03\x01\x03\x01\x04work",
		Envelope{Due: 1790000000000000, Counts: "all", Retries: 3, Payload: "work"}},
	"counts for the longest key": {"\x021790000000000000\x00\x00\x87\x80\x04" + strings.Repeat("c", 512) + "\x01\x00",
		Envelope{Due: 1790000000000000, Counts: strings.Repeat("c", 512)}},
	"a lane": {"\x021790000000000000\x00\x00\x88\x0e001customer-42\x03\x01\x03\x01\x04work",
		Envelope{Due: 1790000000000000, Lane: Lane{"customer-42", 1}, Retries: 3, Payload: "work"}},
	"the longest lane, of a message that counts": {"\x021790000000000000\x00\x01k\x88\xcb\x01100" +
		strings.Repeat("l", 200) + "\x87\x03all\x01\x00",
		Envelope{Due: 1790000000000000, Key: "k", Counts: "all", Lane: Lane{strings.Repeat("l", 200), 100}}},
	"a group with a countdown that counts": {
		"\x021790000000000000\x00\x03all\x87\x05above\x86\x0a0000000002\x85\x03\xc0\x84\x3d\x81\x0b00020000003\x01\x05first",
		Envelope{Due: 1790000000000000, Key: "all", Counts: "above", Countdown: 2, Retention: time.Second,
			Group: Group{Count: 2, Bytes: 3}, Payload: "first"}},
}

// TestFrozenEnvelopes: envelopes of older releases stay readable, and the library writes them byte for byte.
func TestFrozenEnvelopes(t *testing.T) {
	for name, c := range frozen {
		if got, err := DecodeEnvelope(c.raw); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
		if raw := c.want.Encode(When{Us: c.want.Due, Absolute: true}); raw != c.raw {
			t.Errorf("%s is written %q, want %q", name, raw, c.raw)
		}
		if raw := c.want.Encode(When{Us: 1}); raw != c.raw[EnvelopeHead:] {
			t.Errorf("%s after a delay is written %q, want %q", name, raw, c.raw[EnvelopeHead:])
		}
	}
}

// TestFrozenRecords: fail records of older releases stay readable, and an error is written byte for byte.
func TestFrozenRecords(t *testing.T) {
	const errors = "\x1e1790000061250000 2 no\x1e1790000001000000 1 \xff\x1e0 0 no longer known"
	kept := []keptError{{time.UnixMicro(1790000061250000), 2, "no"}, {time.UnixMicro(1790000001000000), 1, "\xff"},
		{Text: "no longer known"}}
	for raw, want := range map[string]FailRecord{
		"2 0 0 1790000061250000 ": {Delivery: 2, When: 1790000061250000},
		"3 1 2 1790000061250000 " + errors: {Delivery: 3, Failures: 1, Losses: 2, When: 1790000061250000,
			Errors: errors},
		"3 1 2 1790000061250000 \x1f" + errors: {Delivery: 3, Failures: 1, Losses: 2, When: 1790000061250000,
			Errors: errors, Superseded: true},
		"2147483647 1 0 9007199254740991 one text": {Delivery: 2147483647, Failures: 1, When: 9007199254740991,
			Errors: "one text"},
	} {
		if got, err := ParseFail(raw); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", raw, got, err, want)
		}
	}
	if got := KeptErrors(errors, MaxErrors); !reflect.DeepEqual(got, kept) {
		t.Errorf("%q is %+v, want %+v", errors, got, kept)
	}
	if got, want := WithError(3, "again", errors), "3 again"+errors; got != want {
		t.Errorf("one more error is written %q, want %q", got, want)
	}
}

// TestFrozenNames: ids and tags say what they always said, and shards, lanes and sequences are written byte for byte.
func TestFrozenNames(t *testing.T) {
	const id = "0190f3a0-0000-7800-8000-00000000e2a7"
	if at, shard := SentAt(id), ShardIn(id); at != 1722074267648524 || shard != 0x2a7 {
		t.Errorf("%s was sent at %d, in shard %d", id, at, shard)
	}
	if got, want := WithShard(id, 0x3ff), "0190f3a0-0000-7800-8000-00000000e3ff"; got != want {
		t.Errorf("in another shard its id is %s, want %s", got, want)
	}
	for tag, want := range map[string]int{id: 1, "2:" + id: 2, "10:" + id: 10, "999999999:" + id: 999999999} {
		if got, n := SplitTag(tag); got != id || n != want {
			t.Errorf("%q is delivery %d of %q, want %d of %q", tag, n, got, want, id)
		}
	}
	if got := (Lane{"l\xff", 7}).Text(); got != "007l\xff" {
		t.Errorf("a lane is written %q", got)
	}
	for n, want := range map[int64]string{0: "09223372036854775808", 42: "09223372036854775850",
		-1: "09223372036854775807"} {
		if got := SequenceDigits(n); got != want {
			t.Errorf("%d in a sequence is written %q, want %q", n, got, want)
		}
	}
}
