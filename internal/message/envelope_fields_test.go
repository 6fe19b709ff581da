package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// inFields is e in version 2, with fields of other types.
func (e *Envelope) inFields(others map[byte]string) string {
	fields := map[byte]string{fieldPayload: e.Payload}
	maps.Copy(fields, others)
	if e.Retries > 0 {
		fields[fieldRetries] = string(binary.AppendUvarint(nil, uint64(e.Retries)))
	}
	if e.TTL > 0 {
		fields[fieldTTL] = string(binary.AppendUvarint(nil, uint64(e.TTL/time.Microsecond)))
	}
	if e.Lane.Width != 0 {
		fields[fieldLane] = fmt.Sprintf("%03d%s", e.Lane.Width, e.Lane.Name)
	}
	if e.Counts != "" {
		fields[fieldCounts] = e.Counts
	}
	if e.Countdown != 0 {
		fields[fieldCountdown] = fmt.Sprintf("%010d", e.Countdown)
	}
	if e.Retention != 0 {
		fields[fieldRetention] = string(binary.AppendUvarint(nil, uint64(e.Retention/time.Microsecond)))
	}
	if e.KeyHold != 0 {
		fields[fieldKeyHold] = string(binary.AppendUvarint(nil, uint64(e.KeyHold/time.Microsecond)))
	}
	if e.Since != 0 {
		fields[fieldSince] = fmt.Sprintf("%016d", e.Since)
	}
	if e.Latest != 0 {
		fields[fieldLatest] = fmt.Sprintf("%016d", e.Latest)
	}
	if e.Group.Count != 0 {
		fields[fieldParts] = fmt.Sprintf("%04d%07d%s", e.Group.Count, e.Group.Bytes, e.Group.Key)
	}
	if e.Deadline != 0 {
		fields[fieldDeadline] = fmt.Sprintf("%016d", e.Deadline)
	}
	if e.Timeout != 0 {
		fields[fieldTimeout] = string(binary.AppendUvarint(nil, uint64(max(e.Timeout, 0)/time.Microsecond)))
	}
	if len(e.Headers) > 0 {
		text := binary.AppendUvarint(nil, uint64(len(e.Headers)))
		for _, k := range slices.Sorted(maps.Keys(e.Headers)) {
			text = append(binary.AppendUvarint(text, uint64(len(k))), k...)
			text = append(binary.AppendUvarint(text, uint64(len(e.Headers[k]))), e.Headers[k]...)
		}
		fields[fieldHeaders] = string(text)
	}
	b := fmt.Appendf(nil, "\x02%016d", e.Due)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(e.Key))), e.Key...)
	for kind := 255; kind > 0; kind-- {
		if text, ok := fields[byte(kind)]; ok {
			b = append(binary.AppendUvarint(append(b, byte(kind)), uint64(len(text))), text...)
		}
	}
	return string(b)
}

// TestEnvelopeFields: version 2 says what version 1 can; what is not known is skipped, or is for a newer version to
// read if its type is 128 or more.
func TestEnvelopeFields(t *testing.T) {
	for name, want := range sampleEnvelopes() {
		for _, others := range []map[byte]string{nil, {7: "", 100: "x", 127: strings.Repeat("y", 300)}} {
			if got, err := DecodeEnvelope(want.inFields(others)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, with %q besides: %+v, %v; want %+v", name, others, got, err, want)
			}
		}
		for _, others := range []map[byte]string{{128: ""}, {255: "x", 7: ""}} {
			got, err := DecodeEnvelope(want.inFields(others))
			if beside := (Envelope{Due: want.Due, Key: want.Key}); !errors.Is(err, ErrNewerVersion) ||
				!reflect.DeepEqual(got, beside) {
				t.Errorf("%s, with %q besides: %+v, %v; want %+v and that it is newer", name, others, got, err, beside)
			}
		}
	}
}

func TestEnvelopeFieldsBroken(t *testing.T) {
	const head = "\x021717200000000000\x00\x00"
	for name, raw := range map[string]string{
		"nothing":                    "",
		"no payload":                 "\x04\x01\x05",
		"no length":                  "\x01",
		"longer than the rest":       "\x01\x02x",
		"an endless length":          "\x01" + strings.Repeat("\xff", 11),
		"more behind the payload":    "\x01\x01xy",
		"payload twice":              "\x01\x01x\x01\x01x",
		"a type twice":               "\x03\x01\x05\x03\x01\x05\x01\x00",
		"a higher type later":        "\x03\x01\x05\x04\x01\x05\x01\x00",
		"a critical one later":       "\x03\x01\x05\x80\x01\x05\x01\x00",
		"type 0":                     "\x00\x01x\x01\x00",
		"type 0 behind the payload":  "\x01\x00\x00\x00",
		"a critical one, cut short":  "\x80\x02x",
		"retries without a number":   "\x03\x00\x01\x00",
		"retries and more":           "\x03\x02\x05\x05\x01\x00",
		"half a TTL":                 "\x04\x01\x80\x01\x00",
		"headers and more":           "\x02\x06\x01\x01a\x01bc\x01\x00",
		"fewer headers than said":    "\x02\x05\x02\x01a\x01b\x01\x00",
		"a header longer than those": "\x02\x05\x01\x01a\x7fb\x01\x00",
		"a deadline of 15 digits":    "\x82\x0f171720000000000\x01\x00",
		"a deadline of 17 digits":    "\x82\x1117172000000000000\x01\x00",
		"a deadline of letters":      "\x82\x10171720000000000x\x01\x00",
		"a timeout without a number": "\x83\x00\x01\x00",
		"a timeout and more":         "\x83\x02\x05\x05\x01\x00",
		"a countdown of 0":           "\x86\x0a0000000000\x01\x00",
		"a countdown above the most": "\x86\x0a1000000001\x01\x00",
		"a countdown of nines":       "\x86\x0a9999999999\x01\x00",
		"a countdown of no digit":    "\x86\x00\x01\x00",
		"a countdown of 9 digits":    "\x86\x09000000003\x01\x00",
		"a countdown of 11 digits":   "\x86\x0b00000000030\x01\x00",
		"a countdown of letters":     "\x86\x0a000000000x\x01\x00",
		"a countdown with a sign":    "\x86\x0a+000000003\x01\x00",
		"a countdown below zero":     "\x86\x0a-000000003\x01\x00",
		"a countdown with blanks":    "\x86\x0a         3\x01\x00",
		"a countdown by tostring":    "\x86\x0a000001e+08\x01\x00",
		"counts for no key":          "\x87\x00\x01\x00",
		"counts for a key too long":  "\x87\x81\x04" + strings.Repeat("k", 513) + "\x01\x00",
		"counts behind a countdown":  "\x86\x0a0000000003\x87\x01k\x01\x00",
		"counts, cut short":          "\x87\x02k",
		"a lane of no width":         "\x88\x00\x01\x00",
		"a lane of 2 digits":         "\x88\x0201\x01\x00",
		"a lane without a name":      "\x88\x03001\x01\x00",
		"a lane of width 0":          "\x88\x04000l\x01\x00",
		"a lane that is too wide":    "\x88\x04101l\x01\x00",
		"a lane with a sign":         "\x88\x04+01l\x01\x00",
		"a lane with blanks":         "\x88\x04  1l\x01\x00",
		"a lane by tostring":         "\x88\x041e1l\x01\x00",
		"a lane with NUL":            "\x88\x06001l\x00l\x01\x00",
		"a lane that is too long":    "\x88\xcc\x01001" + strings.Repeat("l", 201) + "\x01\x00",
		"a lane behind counts":       "\x87\x01k\x88\x04001l\x01\x00",
		"a lane, cut short":          "\x88\x04001",
	} {
		if e, err := DecodeEnvelope(head + raw); !errors.Is(err, errBadEnvelope) || !reflect.DeepEqual(e, Envelope{}) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// FuzzEnvelopeFields: what is written in version 2 is read, and no part of it is.
func FuzzEnvelopeFields(f *testing.F) {
	const lastInstant = 9_999_999_999_999_999
	f.Add(int64(1_717_200_000_000_000), "order-42", 3, int64(600e6), int64(0), int64(0), "trace", "7f3a", "close",
		byte(100), "other")
	f.Add(int64(0), "", 0, int64(0), int64(1), int64(-1), "", "", "", byte(128), "")
	f.Add(int64(1_717_200_000_000_000), "all", 8, int64(1), int64(0), int64(0), "l", "x", "y", byte(134), "")
	f.Add(int64(1_717_200_000_000_000), "order-42", 3, int64(0), int64(5), int64(6), "trace", "7f3a", "close", byte(135),
		"k")
	f.Add(int64(1_717_200_000_000_000), "k", 7, int64(1), int64(0), int64(0), "lane", "x", "y", byte(136), "l")
	f.Add(int64(lastInstant), "\xff\x00", math.MaxInt32, int64(1), int64(lastInstant), int64(math.MaxInt64), "", "x",
		"\x01\x00", byte(0), "")
	f.Fuzz(func(t *testing.T, due int64, key string, retries int, ttl, deadline, timeout int64, name, value,
		payload string, kind byte, other string) {
		e := Envelope{Due: min(max(due, 0), lastInstant), Key: key[:min(len(key), 512)],
			Retries: min(max(retries, 0), math.MaxInt32),
			TTL:     Microseconds(max(ttl, 0)), Deadline: min(max(deadline, 0), lastInstant),
			Timeout: Microseconds(max(timeout, 0)),
			Payload: payload}
		if timeout < 0 {
			e.Timeout = NoTimeout
		}
		if kind%2 == 1 {
			e.Retention = e.TTL
		}
		if kind%5 == 1 {
			e.Since, e.Latest = e.Deadline, e.Deadline
		}
		if kind%3 == 1 {
			e.Group = Group{Count: 2 + e.Retries%(MaxParts-1), Bytes: len(other), Key: name}
		}
		if kind%4 == 2 {
			e.Countdown, e.Counts = min(e.Retries, MaxCountdown), name[:min(len(name), MaxKey)]
		}
		if l := (Lane{value[:min(len(value), MaxLane)], 1 + e.Retries%MaxWidth}); kind%8 == 0 && l.Valid() {
			e.Lane = l
		}
		if name+value != "" {
			e.Headers = map[string]string{name: value}
		}
		var others map[byte]string
		if kind > fieldSince && kind != fieldParts && kind != fieldDeadline && kind != fieldTimeout &&
			kind != fieldKeyHold && kind != fieldRetention && kind != fieldCountdown && kind != fieldCounts &&
			kind != fieldLane {
			others = map[byte]string{kind: other}
		}
		raw := e.inFields(others)
		got, err := DecodeEnvelope(raw)
		if others != nil && kind >= fieldCritical {
			if !errors.Is(err, ErrNewerVersion) || !reflect.DeepEqual(got, Envelope{Due: e.Due, Key: e.Key}) {
				t.Fatalf("with a field of type %d: %+v, %v", kind, got, err)
			}
			return
		}
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("%+v, %v; want %+v", got, err, e)
		}
		for n := range len(raw) {
			if got, err := DecodeEnvelope(raw[:n]); !errors.Is(err, errBadEnvelope) {
				t.Fatalf("%d of %d bytes: %+v, %v", n, len(raw), got, err)
			}
		}
		written := e.Encode(When{Us: e.Due, Absolute: true})
		if got, err := DecodeEnvelope(written); err != nil || !reflect.DeepEqual(got, e) || written[0] != e.Version() {
			t.Fatalf("written %x: %+v, %v; want %+v", written, got, err, e)
		}
		if e.Version() == fieldsVersion && written != e.inFields(nil) {
			t.Fatalf("written %x, want %x", written, e.inFields(nil))
		}
		if late := e.Encode(When{Us: 1}); late != written[EnvelopeHead:] {
			t.Fatalf("after a delay %x, want %x", late, written[EnvelopeHead:])
		}
	})
}
