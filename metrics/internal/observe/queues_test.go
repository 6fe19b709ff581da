package observe

import (
	"testing"
	"unicode/utf8"
)

// Labels are UTF-8, a name that is UTF-8 stays as it is, and no two names have one label.
func TestLabel(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{
		"orders", "заказы", "a\xff", "a\xfe", "a\xff\xff", "a\uFFFD", "a\uFFFD\uFFFD", "a\uFFFDff", "a\xffff", "aff",
		"\xc3", "\xc3\x28", "a\uFFFD\xff",
	} {
		label := Label(name)
		if !utf8.ValidString(label) {
			t.Errorf("%q: %q is no UTF-8", name, label)
		}
		if other, ok := seen[label]; ok {
			t.Errorf("%q and %q are both %q", name, other, label)
		}
		seen[label] = name
	}
	for name, want := range map[string]string{"orders": "orders", "a\xff": "a\uFFFDff", "a\xfe": "a\uFFFDfe", "a\uFFFD": "a\uFFFD\uFFFD"} {
		if got := Label(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}
