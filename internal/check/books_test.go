package check

import (
	"context"
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// TestUnbalanced: a message that the books do not explain is a breach, unless whoever checks knows of it. A reading page by page judges no
// books, because it is of no one instant.
func TestUnbalanced(t *testing.T) {
	server := miniredis.RunT(t)
	cli := client(t, &redis.Options{Addr: server.Addr()})
	b := build(t, cli, "dq")
	n := b.messages()
	b.do("HSET", "state", "in:stored", n+1, "in:found", "2", "out:acked", "1", "told", "1 0", "books", b.now)
	r := &recorder{TB: t}
	Assert(r, cli, b.q.Prefix, b.q.Name)
	want := fmt.Sprintf("queue dq:%s: state: %d messages should be here by the books, and %d are.", t.Name(), n+2, n)
	if len(r.errors) != 1 || r.errors[0] != want {
		t.Errorf("%q, want %q", r.errors, want)
	}
	AssertMissing(t, cli, b.q.Prefix, b.q.Name, 2)
	if _, found, err := Inspect(context.Background(), cli, b.q.Prefix, b.q.Name, nil); err != nil || len(found) > 0 {
		t.Errorf("page by page: %v, %v", found, err)
	}
}
