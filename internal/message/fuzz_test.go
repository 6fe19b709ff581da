package message

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

var fourNumbers = regexp.MustCompile(`^([0-9]+ ){4}`)

var tooLarge = regexp.MustCompile(`^([0-9]+ ){0,3}[0-9]{10,} `)

func FuzzFail(f *testing.F) {
	for _, raw := range []string{"", "2 0 0 1717200000000000 ", "3 1 2 1717200000000000 a b  c\n", "2 0 x 1 ", "2  0 0 1 ",
		"2 0 0 1 \x1f", "2 0 0 1 \x1f\x1fno",
		"3 2 0 1 \x1e5 2 b\x1e4 1 a", "3 2 0 1 \x1e\x1e5", "-1 +1 0 1 x", "99999999999999999999 0 0 1 "} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := ParseFail(raw)
		if (err == nil) != fourNumbers.MatchString(raw) && !tooLarge.MatchString(raw) {
			t.Fatalf("%q: %v", raw, err)
		}
		if err != nil {
			return
		}
		errors := r.Errors
		if r.Superseded {
			errors = supersededMark + errors
		}
		written := fmt.Sprintf("%d %d %d %d %s", r.Delivery, r.Failures, r.Losses, r.When, errors)
		if again, err := ParseFail(written); err != nil || again != r || !strings.HasSuffix(raw, " "+errors) {
			t.Fatalf("%q is %+v, and written anew %+v, %v", raw, r, again, err)
		}
		more := errorMark + "7 " + WithError(r.Delivery, "new", r.Errors)
		all := KeptErrors(more, 9)
		if n := min(len(KeptErrors(r.Errors, 9)), MaxErrors-1); len(all) != n+1 ||
			all[0] != (keptError{time.UnixMicro(7), r.Delivery, "new"}) || len(more) > 1100 {
			t.Fatalf("%q with one more is %q, %+v", raw, more, all)
		}
	})
}
