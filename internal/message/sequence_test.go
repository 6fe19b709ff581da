package message

import (
	"math"
	"testing"
)

// TestSequenceDigits: the texts of two numbers compare as the numbers do.
func TestSequenceDigits(t *testing.T) {
	all := []int64{math.MinInt64, math.MinInt64 + 1, -1 << 53, -11, -10, -1, 0, 1, 9, 10, 1 << 53, 1<<53 + 1,
		math.MaxInt64}
	for i, n := range all {
		digits := SequenceDigits(n)
		if back, err := SequenceNumber(digits); err != nil || back != n || len(digits) != 20 {
			t.Errorf("%d is %q, which is %d, %v", n, digits, back, err)
		}
		if i > 0 && digits <= SequenceDigits(all[i-1]) {
			t.Errorf("%d is %q, not more than %q", n, digits, SequenceDigits(all[i-1]))
		}
	}
	for _, bad := range []string{"", "1", "18446744073709551616", "0000000000000000001x", "000000000000000000001"} {
		if n, err := SequenceNumber(bad); err == nil {
			t.Errorf("%q is %d", bad, n)
		}
	}
}
