package check

import (
	"maps"
	"math"
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
		{"version 0", "\x00" + good[1:], "version is 0, want 1"},
		{"version 2", "\x02" + good[1:], "version is 2, want 1"},
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
