package delayqueue

import (
	"context"
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
func (e *envelope) inFields(others map[byte]string) string {
	fields := map[byte]string{fieldPayload: e.payload}
	maps.Copy(fields, others)
	if e.retries > 0 {
		fields[fieldRetries] = string(binary.AppendUvarint(nil, uint64(e.retries)))
	}
	if e.ttl > 0 {
		fields[fieldTTL] = string(binary.AppendUvarint(nil, uint64(e.ttl/time.Microsecond)))
	}
	if e.retention != 0 {
		fields[fieldRetention] = string(binary.AppendUvarint(nil, uint64(e.retention/time.Microsecond)))
	}
	if e.keyHold != 0 {
		fields[fieldKeyHold] = string(binary.AppendUvarint(nil, uint64(e.keyHold/time.Microsecond)))
	}
	if e.since != 0 {
		fields[fieldSince] = fmt.Sprintf("%016d", e.since)
	}
	if e.latest != 0 {
		fields[fieldLatest] = fmt.Sprintf("%016d", e.latest)
	}
	if e.group.count != 0 {
		fields[fieldParts] = fmt.Sprintf("%04d%07d%s", e.group.count, e.group.bytes, e.group.key)
	}
	if e.deadline != 0 {
		fields[fieldDeadline] = fmt.Sprintf("%016d", e.deadline)
	}
	if e.timeout != 0 {
		fields[fieldTimeout] = string(binary.AppendUvarint(nil, uint64(max(e.timeout, 0)/time.Microsecond)))
	}
	if len(e.headers) > 0 {
		text := binary.AppendUvarint(nil, uint64(len(e.headers)))
		for _, k := range slices.Sorted(maps.Keys(e.headers)) {
			text = append(binary.AppendUvarint(text, uint64(len(k))), k...)
			text = append(binary.AppendUvarint(text, uint64(len(e.headers[k]))), e.headers[k]...)
		}
		fields[fieldHeaders] = string(text)
	}
	b := fmt.Appendf(nil, "\x02%016d", e.due)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(e.key))), e.key...)
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
			if got, err := decodeEnvelope(want.inFields(others)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, with %q besides: %+v, %v; want %+v", name, others, got, err, want)
			}
		}
		for _, others := range []map[byte]string{{128: ""}, {255: "x", 7: ""}} {
			got, err := decodeEnvelope(want.inFields(others))
			if beside := (envelope{due: want.due, key: want.key}); !errors.Is(err, errNewerVersion) || !reflect.DeepEqual(got, beside) {
				t.Errorf("%s, with %q besides: %+v, %v; want %+v and that it is newer", name, others, got, err, beside)
			}
		}
	}
}

// TestEnvelopeVersions: version 2 is written of what version 1 cannot say, and of nothing else; messages of both share a batch.
func TestEnvelopeVersions(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		limited := func(e *envelope) { e.timeout = time.Minute }
		versions := map[string]byte{}
		for i, batch := range [][]*sendMessage{
			{msg("a", time.Second)}, // by single
			{msg("b", time.Second, limited)},
			{msgAt("c", time.Second, limited)},
			{msg("d", time.Second), msg("e", time.Second, limited), msg("f", time.Second, limited, keyed("f")), msg("g", time.Second)},
			{msgAt("h", time.Hour), msgAt("i", time.Hour, limited), msg("j", time.Hour), msg("k", 2*time.Hour, limited), msgAt("l", 0)},
		} {
			for _, m := range batch {
				versions[m.id] = m.version
			}
			if runs := len((&sendRequest{messages: batch}).args(newCaller())) - 3 - 2*len(batch); runs != 3*[]int{1, 1, 1, 3, 4}[i] {
				r.t.Errorf("batch %d has %d arguments for its runs", i, runs)
			}
			r.put(batch...)
		}
		for id, m := range r.read().Messages {
			if m.Version != versions[id] || m.Problem != "" || (m.Version == 2) != (m.Timeout == 60e6) {
				r.t.Errorf("%s: %+v, want version %d", names(id), m, versions[id])
			}
		}
	})
}

// TestEnvelopeFieldsInScripts: scripts find due and key in version 2 where they are in version 1, and keep the version.
func TestEnvelopeFieldsInScripts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		inFields := func(name string, d time.Duration, rest ...func(*envelope)) *sendMessage {
			m := msgAt(name, d, rest...)
			e, err := decodeEnvelope(m.text)
			if err != nil {
				r.t.Fatal(err)
			}
			m.text = e.inFields(map[byte]string{9: "other"})
			return m
		}
		due := func(name string, want time.Duration) {
			r.t.Helper()
			if e := r.read().Messages[idOf(name)]; e.Version != 2 || r.since(e.Due) != want || e.Problem != "" {
				r.t.Errorf("%s: %+v, want it of version 2 and due at %v", name, e, want)
			}
		}
		r.at(time.Minute)
		r.put(inFields("a", 0)) // by single
		r.put(inFields("b", 0, keyed("kb")), inFields("c", time.Hour, keyed("kc")))
		due("a", time.Minute)
		due("b", time.Minute)
		out := r.send(newCaller(), inFields("d", time.Hour, keyed("kc")))
		r.equal("refused", out.refused, map[int]string{0: idOf("c")})
		steer := func(do steerRequest) steered {
			r.t.Helper()
			c := newCaller()
			c.next()
			done, err := r.store.steer(context.Background(), c, do)
			if err != nil {
				r.t.Fatal(err)
			}
			return done[0]
		}
		at := rigBase + (2 * time.Hour).Microseconds()
		r.equal("by key", steer(steerRequest{what: "at", us: at, only: "key", targets: []spot{{tag: "kc"}}}),
			steered{state: StatePending, done: true})
		due("c", 2*time.Hour)
		if found, err := r.store.look(context.Background(), "key", "kc"); err != nil || found.ID != idOf("c") ||
			found.Broken != nil || found.Payload != "c" {
			r.t.Errorf("by key: %+v, %v", found, err)
		}
		r.equal("handed out", len(r.fetch(newCaller(), 10).tags), 2)
		r.done(ends(outcomeGarbage, "b", 1, 0, "x", "kb"))
		r.equal("back from garbage", steer(steerRequest{what: "requeue", us: r.now, targets: []spot{{tag: idOf("b")}}}),
			steered{state: StateGarbage, done: true})
		r.equal("holder", r.read().Keys["kb"], idOf("b"))
		r.equal("taken out", r.cancel("key", "kc"), StatePending)
		r.equal("and its key", r.read().Keys["kc"], "")
		r.with.maxLosses = 1
		r.tickTo(2*time.Minute + 9*time.Second)
		r.fetch(newCaller(), 10) // b
		r.tickTo(3 * time.Minute)
		r.equal("keys of what is poison", len(r.read().Keys), 0)
	})
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
	} {
		if e, err := decodeEnvelope(head + raw); !errors.Is(err, errBadEnvelope) || !reflect.DeepEqual(e, envelope{}) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// FuzzEnvelopeFields: what is written in version 2 is read, and no part of it is.
func FuzzEnvelopeFields(f *testing.F) {
	const lastInstant = 9_999_999_999_999_999
	f.Add(int64(1_717_200_000_000_000), "order-42", 3, int64(600e6), int64(0), int64(0), "trace", "7f3a", "close", byte(100), "other")
	f.Add(int64(0), "", 0, int64(0), int64(1), int64(-1), "", "", "", byte(128), "")
	f.Add(int64(lastInstant), "\xff\x00", math.MaxInt32, int64(1), int64(lastInstant), int64(math.MaxInt64), "", "x", "\x01\x00", byte(0), "")
	f.Fuzz(func(t *testing.T, due int64, key string, retries int, ttl, deadline, timeout int64, name, value,
		payload string, kind byte, other string) {
		e := envelope{due: min(max(due, 0), lastInstant), key: key[:min(len(key), maxKey)], retries: min(max(retries, 0), math.MaxInt32),
			ttl: microseconds(max(ttl, 0)), deadline: min(max(deadline, 0), lastInstant), timeout: microseconds(max(timeout, 0)), payload: payload}
		if timeout < 0 {
			e.timeout = noTimeout
		}
		if kind%2 == 1 {
			e.retention = e.ttl
		}
		if kind%5 == 1 {
			e.since, e.latest = e.deadline, e.deadline
		}
		if kind%3 == 1 {
			e.group = group{count: 2 + e.retries%(maxParts-1), bytes: len(other), key: name}
		}
		if name+value != "" {
			e.headers = map[string]string{name: value}
		}
		var others map[byte]string
		if kind > fieldSince && kind != fieldParts && kind != fieldDeadline && kind != fieldTimeout &&
			kind != fieldKeyHold && kind != fieldRetention {
			others = map[byte]string{kind: other}
		}
		raw := e.inFields(others)
		got, err := decodeEnvelope(raw)
		if others != nil && kind >= fieldCritical {
			if !errors.Is(err, errNewerVersion) || !reflect.DeepEqual(got, envelope{due: e.due, key: e.key}) {
				t.Fatalf("with a field of type %d: %+v, %v", kind, got, err)
			}
			return
		}
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("%+v, %v; want %+v", got, err, e)
		}
		for n := range len(raw) {
			if got, err := decodeEnvelope(raw[:n]); !errors.Is(err, errBadEnvelope) {
				t.Fatalf("%d of %d bytes: %+v, %v", n, len(raw), got, err)
			}
		}
		written := e.encode(when{us: e.due, absolute: true})
		if got, err := decodeEnvelope(written); err != nil || !reflect.DeepEqual(got, e) || written[0] != e.version() {
			t.Fatalf("written %x: %+v, %v; want %+v", written, got, err, e)
		}
		if e.version() == fieldsVersion && written != e.inFields(nil) {
			t.Fatalf("written %x, want %x", written, e.inFields(nil))
		}
		if late := e.encode(when{us: 1}); late != written[envelopeHead:] {
			t.Fatalf("after a delay %x, want %x", late, written[envelopeHead:])
		}
	})
}
