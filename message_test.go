package delayqueue

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

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
		StateGarbage: "garbage", StateDone: "done", 7: "State(7)", -1: "State(-1)", math.MaxInt: "State(9223372036854775807)"} {
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
