package message

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestFail(t *testing.T) {
	for raw, want := range map[string]FailRecord{
		"12 11 0 1717200000000000  a b  c\n\"": {12, 11, 0, 1_717_200_000_000_000, " a b  c\n\"", false},
		"1 0 0 1 1 2 3":                        {1, 0, 0, 1, "1 2 3", false},
		"1 0 0 0 \x1f":                         {Delivery: 1, Superseded: true},
		"2 1 0 1 no\x1f":                       {2, 1, 0, 1, "no\x1f", false},
	} {
		if got, err := ParseFail(raw); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{"", " ", "2", "2 0 0 1717200000000000", "x 0 0 1 ", "2 x 0 1 ", "2 0 x 1 ", "2 0 0 x ",
		"2  0 0 1 ",
		"2 0 0 1.7172e+15 boom", "2.5 0 0 1 ", "99999999999999999999 0 0 1 "} {
		if got, err := ParseFail(raw); err == nil {
			t.Errorf("%q is %+v, want an error", raw, got)
		}
	}
}

func TestErrorText(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":                  {"", ""},
		"plain":                  {"boom", "boom"},
		"many bytes to a letter": {"größer → 語", "größer → 語"},
		"lines, and the mark":    {"a\nb\x1ec", "a\nb c"},
		"not UTF-8":              {"a\xff\xfeb\x00", "a\uFFFDb\x00"},
		"half a letter":          {"a\xe8\xaa", "a\uFFFD"},
		"as long as allowed":     {strings.Repeat("x", MaxErrorText), strings.Repeat("x", MaxErrorText)},
		"too long":               {strings.Repeat("x", MaxErrorText+1), strings.Repeat("x", MaxErrorText)},
		"cut within a letter":    {strings.Repeat("語", MaxErrorText), strings.Repeat("語", MaxErrorText/3)},
		"cut behind a letter":    {"x" + strings.Repeat("語", MaxErrorText), "x" + strings.Repeat("語", MaxErrorText/3)},
		"long and not UTF-8": {strings.Repeat("\xff", 5) + strings.Repeat("é", 2*MaxErrorText),
			"\uFFFD" + strings.Repeat("é", (MaxErrorText-3)/2)},
	} {
		t.Run(name, func(t *testing.T) {
			got := ErrorText(errors.New(c.text))
			if got != c.want || !utf8.ValidString(got) || len(got) > MaxErrorText {
				t.Errorf("%d bytes %.60q, want %d bytes %.60q", len(got), got, len(c.want), c.want)
			}
		})
	}
}

func TestKeptErrors(t *testing.T) {
	at := time.UnixMicro(5)
	var five []keptError
	for range 5 {
		five = append(five, keptError{at, 1, "x"})
	}
	for raw, want := range map[string][]keptError{
		"":                                 nil,
		"one, as it was":                   {{Text: "one, as it was"}},
		"7 8 one\x1e9 10 as it was":        {{Text: "7 8 one\x1e9 10 as it was"}},
		"\x1e5 1 x":                        {{at, 1, "x"}},
		"\x1e5 2 a b\n\xff\x1e0 0 c":       {{at, 2, "a b\n\xff"}, {Text: "c"}},
		"\x1e5 2 ":                         {{at, 2, ""}},
		"\x1e":                             {{}},
		"\x1ex\x1e5 1":                     {{Text: "x"}, {Text: "5 1"}},
		"\x1e-1 2 x\x1e1 -2 x\x1e 1 2 x":   {{Text: "-1 2 x"}, {Text: "1 -2 x"}, {Text: " 1 2 x"}},
		"\x1e5 99999999999 x":              {{Text: "5 99999999999 x"}},
		strings.Repeat("\x1e5 1 x", 9):     five,
		"\x1e9223372036854775807 1 beyond": {{time.UnixMicro(LastInstant), 1, "beyond"}},
	} {
		if got := KeptErrors(raw, 5); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, want %+v", raw, got, want)
		}
		if got := LastError(raw); want == nil && got != "" || want != nil && got != want[0].Text {
			t.Errorf("the last of %q is %q", raw, got)
		}
	}
}

// TestWithError: the newest is as it is, four before it are cut, and what had no number stays.
func TestWithError(t *testing.T) {
	long := strings.Repeat("語", 300)
	cut := long[:66*3]
	for _, c := range []struct{ errors, want string }{
		{"", ""},
		{"once\x1etwice", "\x1e0 0 once twice"},
		{"\x1e5 2 a b", "\x1e5 2 a b"},
		{"\x1e5 2 " + long + "\x1e4 1 " + long, "\x1e5 2 " + cut + "\x1e4 1 " + cut},
		{strings.Repeat("\x1e5 1 x", 9), strings.Repeat("\x1e5 1 x", 4)},
		{"\x1e5 2 " + strings.Repeat("x", maxOlderText), "\x1e5 2 " + strings.Repeat("x", maxOlderText)},
		{"\x1e5 2 " + strings.Repeat("\x80", 2*maxOlderText), "\x1e5 2 "}, // no character begins there
		{"\x1e", "\x1e0 0 "},
	} {
		if got := WithError(3, long, c.errors); got != "3 "+long+c.want {
			t.Errorf("%q before %q is %q", "3 "+long, c.errors, got)
		}
	}
}
