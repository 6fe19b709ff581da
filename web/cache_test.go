package web

import (
	"fmt"
	"strings"
	"testing"
)

// Names that somebody makes up do not fill the memory.
func TestCacheIsBounded(t *testing.T) {
	for _, long := range []int{1, 100_000} {
		c := &cache{}
		for i := range 3 * cacheMost {
			one, mine := c.take(fmt.Sprint(i, strings.Repeat("x", long)))
			if one == nil || !mine {
				t.Fatal(i, one, mine)
			}
			c.wg.Done()
			all := 0
			for key := range c.kept {
				all += len(key)
			}
			if len(c.kept) > cacheMost || all > cacheKeys || all != c.keys {
				t.Fatalf("%d keys of %d bytes, said to be %d", len(c.kept), all, c.keys)
			}
		}
	}
}
