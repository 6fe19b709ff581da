package script

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptRefusals: the code of a script's refusal is found wherever a server puts it in the error.
func TestScriptRefusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		is   error
		says string
	}{
		"WRONGTYPE Operation against a key holding the wrong kind of value": {ErrWrongType, "belongs to another program"},
		"DQLAYOUT 2": {ErrUnknownLayout, "it is 2"},
		"DQPAST":     {errPast, "is over"},
		"DQNOQUEUE":  {ErrNoQueue, "has no key"},
	} {
		for _, before := range []string{"", "ERR ", "ERR Error running script (call to f_60d0): @user_script:68: @user_script: 68: "} {
			if got := refusedBy(queuetest.Answer(before + code)); !errors.Is(got, want.is) || !strings.Contains(got.Error(), want.says) {
				t.Errorf("%q is %v", before+code, got)
			}
		}
	}
	if got := refusedBy(queuetest.Answer("READONLY x")); got != queuetest.Answer("READONLY x") {
		t.Errorf("another answer is %v", got)
	}
}

// TestWritePermit: a permit is either used or revoked.
func TestWritePermit(t *testing.T) {
	t.Parallel()
	for range 1000 {
		p := new(WritePermit)
		used := make(chan bool)
		go func() { used <- p.use() == nil }()
		revoked := p.Revoke()
		if <-used == revoked || p.Revoke() != revoked || (p.use() == nil) == revoked {
			t.Fatal("a revoked permit was used, or one was neither used nor revoked")
		}
	}
}
