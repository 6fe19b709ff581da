package check

import (
	"strings"
	"testing"
)

// malformedTag is what is said of a tag that is none.
const malformedTag = "want a UUIDv7, or a number from 2 on, a colon and a UUIDv7"

// TestDecodeTag: an id is read from a tag that is malformed, too, if there is one.
func TestDecodeTag(t *testing.T) {
	const id = "0190f3a0-0000-7000-8000-000000000061"
	for tag, want := range map[string]Entry{
		id:                                      {ID: id, Delivery: 1},
		"2:" + id:                               {ID: id, Delivery: 2},
		"1:" + id:                               {ID: id, TagProblem: malformedTag},
		"02:" + id:                              {ID: id, TagProblem: malformedTag},
		":" + id:                                {ID: id, TagProblem: malformedTag},
		"2:":                                    {TagProblem: malformedTag},
		id[:35]:                                 {TagProblem: malformedTag},
		strings.ToUpper(id):                     {TagProblem: malformedTag},
		"0190f3a0-0000-4000-8000-000000000061":  {TagProblem: malformedTag},
		"0190f3a0-0000-7000-c000-000000000061":  {TagProblem: malformedTag},
		"0190f3a000007000800000000000000000061": {TagProblem: malformedTag},
		"{" + id + "}":                          {TagProblem: malformedTag},
	} {
		want.Tag = tag
		if got := decodeTag(tag); got != want {
			t.Errorf("%q: %+v, want %+v", tag, got, want)
		}
	}
}

func TestDecodeScore(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1700000000000001": 1_700_000_000_000_001, "1.7e+15": 1_700_000_000_000_000,
		"9007199254740991": maxInstant - 1,
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
