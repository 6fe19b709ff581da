package message

import (
	"strconv"
	"testing"
)

// tagOf is the tag of a delivery.
func tagOf(id string, n int) string {
	if n == 1 {
		return id
	}
	return strconv.Itoa(n) + ":" + id
}

// TestTag: a text that is no tag is the id of a first delivery. TestFrozenNames has those that are one.
func TestTag(t *testing.T) {
	const id = "0190f3a0-0000-7000-8000-000000000001"
	for _, tag := range []string{":" + id, "1:" + id, "0:" + id, "-2:" + id, "+2:" + id, "02:" + id, "x:" + id,
		"2.0:" + id, " 2:" + id, "2 :" + id,
		"1e3:" + id, "0x2:" + id, "2_0:" + id, "1000000000:" + id, "2:", ":"} {
		if id, n := SplitTag(tag); id != tag || n != 1 {
			t.Errorf("%q is delivery %d of %q, want the first of one with that name", tag, n, id)
		}
	}
}

func FuzzTag(f *testing.F) {
	for _, tag := range []string{"a", "2:a", "10:a:b", ":", "02:a", "1:a", "-1:a", "+2:a", "2:"} {
		f.Add(tag)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		id, n := SplitTag(tag)
		if n < 1 || tagOf(id, n) != tag {
			t.Fatalf("%q is delivery %d of %q, whose tag is %q", tag, n, id, tagOf(id, n))
		}
	})
}
