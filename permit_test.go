package delayqueue

import "testing"

// TestWritePermit: a permit is either used or revoked.
func TestWritePermit(t *testing.T) {
	t.Parallel()
	for range 1000 {
		p := new(writePermit)
		used := make(chan bool)
		go func() { used <- p.use() == nil }()
		revoked := p.revoke()
		if <-used == revoked || p.revoke() != revoked || (p.use() == nil) == revoked {
			t.Fatal("a revoked permit was used, or one was neither used nor revoked")
		}
	}
}
