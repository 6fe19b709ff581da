package check

import (
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestDecodeEnvelope(t *testing.T) {
	const due = 1_700_000_000_000_000
	good := encode(due, "k", 3, 300, 5_000_000, 2, 1, "a", 1, "b", 0, 3, "xyz", "load")
	e := decodeEnvelope(good)
	if e.Problem != "" || e.Version != 1 || e.Due != due || e.Key != "k" || e.Flags != 3 || e.Retries != 300 ||
		e.TTL != 5_000_000 || e.Payload != "load" || e.Size != len(good) ||
		!maps.Equal(e.Headers, map[string]string{"a": "b", "": "xyz"}) {
		t.Errorf("decoded %+v", e)
	}
	if e := decodeEnvelope(encode(due, strings.Repeat("k", 512), 0, uint64(math.MaxInt64))); e.Problem != "" || e.Retries != math.MaxInt64 {
		t.Errorf("longest key and most retries: %+v", e)
	}
	// Each prefix of it that ends before the payload is cut within some part.
	for n := range len(good) - len("load") {
		if e := decodeEnvelope(good[:n]); !strings.HasPrefix(e.Problem, "ends within its ") {
			t.Errorf("cut at %d: problem %q", n, e.Problem)
		}
	}

	for _, c := range []struct{ name, raw, want string }{
		{"version 0", "\x00" + good[1:], "version is 0, want 1 or 2"},
		{"version 3", "\x03" + good[1:], "version is 3, want 1 or 2"},
		{"due 0", encode(0, "", 0, 0), `due is "0000000000000000", want 16 digits in (0, 2^53)`},
		{"due too large", encode(1<<53, "", 0, 0), `due is "9007199254740992", want 16 digits in (0, 2^53)`},
		{"due padded with blanks", "\x01  10000000000000\x00\x00\x00\x00", `due is "  10000000000000", want 16 digits in (0, 2^53)`},
		{"due signed", "\x01+100000000000000\x00\x00\x00\x00", `due is "+100000000000000", want 16 digits in (0, 2^53)`},
		{"key too long", encode(due, strings.Repeat("k", 513), 0, 0), "length of key is 513, want at most 512"},
		{"unknown flags", encode(due, "", 0x86, 0), "unknown flags 0x84 are set"},
		{"retries too many", encode(due, "", 0, uint64(1<<63)), "retry count overflows 63 bits"},
		{"retries without end", encode(due, "", 0, strings.Repeat("\xff", 11)), "retry count overflows 63 bits"},
		{"retries too long", encode(due, "", 0, "\x83\x00"), "retry count is not in its shortest form"},
		{"TTL 0", encode(due, "", 1, 3, 0), "TTL is 0 though its flag is set"},
		{"no headers", encode(due, "", 2, 3, 0), "number of headers is 0 though their flag is set"},
		{"header twice", encode(due, "", 2, 3, 2, 1, "a", 1, "b", 1, "a", 1, "c"), `header "a" stands twice`},
		{"header of any length", encode(due, "", 2, 3, 1, uint64(math.MaxInt64)), "ends within its header name: 0 bytes, want 2147483647"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := decodeEnvelope(c.raw).Problem; got != c.want {
				t.Errorf("problem %q, want %q", got, c.want)
			}
		})
	}
}

func TestDecodeEnvelopeFields(t *testing.T) {
	const head = "\x021700000000000000\x00\x01k"
	good := head + "\x88\x05020ln" + "\x87\x03all" + "\x86\x0a0000000017" + "\x85\x01\x09" + "\x84\x01\x0b" +
		"\x83\x01\x07" + "\x82\x101700000000000009" + "\x81\x0d00120000345gk" + "\x7f\x05other" +
		"\x05\x101700000000000008" + "\x04\x01\x05" + "\x03\x02\xac\x02" + "\x02\x05\x01\x01a\x01b" + "\x01\x04load"
	want := Envelope{Version: 2, Due: 1_700_000_000_000_000, Key: "k", Retries: 300, TTL: 5, Payload: "load", Size: len(good),
		Headers: map[string]string{"a": "b"},
		Latest:  1_700_000_000_000_008, KeyHold: 11, Deadline: 1_700_000_000_000_009, Timeout: 7, Retention: 9, Parts: 12,
		PartBytes: 345, GroupKey: "gk", Countdown: 17, Counts: "all", Lane: "ln", Width: 20}
	if e := decodeEnvelope(good); !reflect.DeepEqual(e, want) {
		t.Errorf("decoded %+v", e)
	}
	for n := range len(good) {
		if e := decodeEnvelope(good[:n]); !strings.HasPrefix(e.Problem, "ends within its ") {
			t.Errorf("cut at %d: problem %q", n, e.Problem)
		}
		if e := decodeHead(good[:n], len(good)); n > len(head) && (e.Problem != "" || e.Key != "k" || e.Size != len(good)) {
			t.Errorf("the first %d bytes: %+v", n, e)
		}
	}
	if e := decodeHead(head+"\x80\x00\x01", 1000); e.Problem != "field 128 is not known, and must be" {
		t.Errorf("a head with a field that must be known: %+v", e)
	}
	for _, c := range []struct{ name, raw, want string }{
		{"nothing", "", "ends within its type of a field: 0 bytes, want 1"},
		{"no payload", "\x04\x01\x05", "ends within its type of a field: 0 bytes, want 1"},
		{"more behind the payload", "\x01\x00x", "1 bytes stand behind its payload"},
		{"rising types", "\x03\x01\x05\x04\x01\x05\x01\x00", "field 4 stands behind field 3"},
		{"a type twice", "\x07\x00\x07\x00\x01\x00", "field 7 stands behind field 7"},
		{"type 0", "\x07\x00\x00\x00", "field 0 stands behind field 7"},
		{"countdown 0", "\x86\x0a0000000000\x01\x00", `countdown is "0000000000", want 10 digits from 1 to 1000000000`},
		{"countdown above the most", "\x86\x0a1000000001\x01\x00", `countdown is "1000000001", want 10 digits from 1 to 1000000000`},
		{"countdown of letters", "\x86\x0a000000000x\x01\x00", `countdown is "000000000x", want 10 digits from 1 to 1000000000`},
		{"countdown with a sign", "\x86\x0a+000000003\x01\x00", `countdown is "+000000003", want 10 digits from 1 to 1000000000`},
		{"countdown of 9 digits", "\x86\x09000000003\x01\x00", "ends within its countdown: 9 bytes, want 10"},
		{"countdown of 11 digits", "\x86\x0b00000000030\x01\x00", "field 134 has 1 bytes too many"},
		{"counts for nothing", "\x87\x00\x01\x00", "the key for which it counts has 0 bytes, want 1 to 512"},
		{"counts for a key too long", "\x87\x81\x04" + strings.Repeat("k", 513) + "\x01\x00",
			"the key for which it counts has 513 bytes, want 1 to 512"},
		{"counts behind a countdown", "\x86\x0a0000000003\x87\x01k\x01\x00", "field 135 stands behind field 134"},
		{"key hold 0", "\x84\x01\x00\x01\x00", "key hold is 0 though it has a field"},
		{"latest instant cut short", "\x05\x03170\x01\x00", "ends within its latest instant: 3 bytes, want 16"},
		{"retries 0", "\x03\x01\x00\x01\x00", "retry count is 0 though it has a field"},
		{"TTL 0", "\x04\x01\x00\x01\x00", "TTL is 0 though it has a field"},
		{"deadline 0", "\x82\x100000000000000000\x01\x00", `deadline is "0000000000000000", want 16 digits in (0, 2^53)`},
		{"deadline cut short", "\x82\x03170\x01\x00", "ends within its deadline: 3 bytes, want 16"},
		{"retention 0", "\x85\x01\x00\x01\x00", "retention is 0 though it has a field"},
		{"timeout without a number", "\x83\x00\x01\x00", "ends within its timeout"},
		{"TTL and more", "\x04\x02\x05\x05\x01\x00", "field 4 has 1 bytes too many"},
		{"a field that must be known", "\xff\x00\x01\x00", "field 255 is not known, and must be"},
		{"a length that is too long", "\x01\x80\x00", "length of a field is not in its shortest form"},
	} {
		if got := decodeEnvelope(head + c.raw).Problem; got != c.want {
			t.Errorf("%s: problem %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCheckID(t *testing.T) {
	for _, c := range []struct{ id, want string }{
		{"0190f3a0-0000-7000-8000-000000000001", ""},
		{"0190f3a0-0000-7000-8000-00000000001", "35 characters, want 36"},
		{"0190F3a0-0000-7000-8000-000000000001", "character 'F' at 4"},
		{"0190f3a0-0000-7000-8000000-000000001", "character '0' at 23"},
		{"0190f3a0-0000-7-00-8000-000000000001", "character '-' at 15"},
		{"0190f3a0-0000-4000-8000-000000000001", "version 4, want 7"},
		{"0190f3a0-0000-7000-c000-000000000001", "variant c, want 8, 9, a or b"},
	} {
		got := ""
		if err := checkID(c.id); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.id, got, c.want)
		}
	}
}

func TestDecodeScore(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1700000000000001": 1_700_000_000_000_001, "1.7e+15": 1_700_000_000_000_000, "9007199254740991": maxInstant - 1,
	} {
		if got, problem := decodeScore(text); got != want || problem != "" {
			t.Errorf("%s: %d, %q", text, got, problem)
		}
	}
	for _, text := range []string{"0", "-1", "0.5", "inf", "-inf", "nan", "", "9007199254740992"} {
		if got, problem := decodeScore(text); got != 0 || problem == "" {
			t.Errorf("%s: %d without a problem", text, got)
		}
	}
}

// TestDecodeOverrun: what stands in unack for a handler that runs on belongs to no message.
func TestDecodeOverrun(t *testing.T) {
	const id = "0190f3a0-0000-7000-8000-000000000061"
	for tag, want := range map[string]Entry{
		"overrun:" + id:         {Delivery: 1, Overrun: true},
		"overrun:2:" + id:       {Delivery: 2, Overrun: true},
		"overrun:1:" + id:       {Overrun: true, TagProblem: "its delivery number is 1, and a number is written from 2 on"},
		"overrun:overrun:" + id: {Overrun: true, TagProblem: `its delivery number is "overrun", want digits only`},
		"overrun:":              {Overrun: true, TagProblem: "its id is no UUIDv7: 0 characters, want 36"},
	} {
		want.Tag, want.Score = tag, 1_700_000_000_000_000
		s := newState(Queue{})
		s.fill("unack", []string{tag, "1700000000000000"})
		if got := s.Unack[0]; got != want {
			t.Errorf("%s: %+v, want %+v", tag, got, want)
		}
	}
	for _, member := range []string{"2:" + id, "overruns:" + id} {
		s := newState(Queue{})
		s.fill("unack", []string{member, "1700000000000000"})
		if len(s.Unack) != 0 || !s.Leases[member].InUnack {
			t.Errorf("%s: %+v", member, s)
		}
	}
}
