package redistest

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestScript(t *testing.T) {
	const src = "return 1"
	sha := redis.NewScript(src).Hash()
	for _, tt := range []struct {
		cmd  []string
		want bool
	}{
		{[]string{"evalsha", sha, "0"}, true},
		{[]string{"EVALSHA", strings.ToUpper(sha), "0"}, true},
		{[]string{"evalsha_ro", sha, "0"}, true},
		{[]string{"eval", src, "0"}, true},
		{[]string{"EVAL_RO", src, "0"}, true},
		{[]string{"eval", "return 2", "0"}, false},
		{[]string{"evalsha", strings.Repeat("0", 40), "0"}, false},
		{[]string{"script", "load", src}, false},
		{[]string{"get", sha}, false},
		{[]string{"evalsha"}, false},
		{nil, false},
	} {
		if got := Script(sha)(tt.cmd); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.cmd, got, tt.want)
		}
	}
}
