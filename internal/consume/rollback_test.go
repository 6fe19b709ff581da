package consume

import (
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestRemembrance: what a consumer remembers says how much the server has forgotten at most. What only looks like
// that is no rollback.
func TestRemembrance(t *testing.T) {
	const second, begin = int64(1e6), int64(1_800_000_000_000_000)
	type look struct {
		at, call, known, knownAt, stored,
		acked int64 // at, knownAt: seconds since the begin; known: number of the call that the server knows; 0: none
	}
	for name, c := range map[string]struct {
		looks []look
		want  rollback // of the last look, times in seconds since the begin
		gone  bool
	}{
		"a fetch after the other": {[]look{{1, 1, 0, 0, 10, 5}, {2, 2, 1, 1, 20, 9}, {4, 3, 2, 2, 20, 9}}, rollback{},
			false},
		"a repeat": {[]look{{1, 1, 0, 0, 10, 5}, {3, 2, 2, 2, 12, 5}}, rollback{}, false},
		"a clock that is stepped back": {[]look{{100, 1, 0, 0, 10, 5}, {50, 2, 1, 100, 11, 5}, {51, 3, 2, 50, 11, 5}},
			rollback{}, false},
		"the same, and a lost reply": {[]look{{100, 1, 0, 0, 10, 5}, {50, 2, 2, 49, 11, 5}}, rollback{}, false},
		"after an hour of silence":   {[]look{{1, 1, 0, 0, 10, 5}, {3700, 2, 0, 0, 12, 5}}, rollback{}, false},
		"a clock that is stepped back for hours, and a record that was deleted for that": {[]look{{20000, 1, 0, 0, 10, 5},
			{20001, 2, 1, 20000, 30, 5}, {1000, 3, 0, 0, 30, 5}}, rollback{}, false},
		"under another name": {[]look{{1, 9, 0, 0, 10, 5}, {2, -1, 0, 0, 12, 5}}, rollback{}, false},
		"only hand-outs are forgotten": {[]look{{1, 1, 0, 0, 10, 5}, {2, 2, 1, 1, 20, 5}, {3, 3, 2, 2, 20, 5},
			{4, 4, 2, 2, 20, 5}}, rollback{}, false},
		"sends are forgotten": {[]look{{1, 1, 0, 0, 10, 5}, {2, 2, 1, 1, 30, 5}, {5, 3, 1, 1, 10, 5}},
			rollback{1, 2, 20, 0}, true},
		"and as many were sent since": {[]look{{1, 1, 0, 0, 10, 5}, {2, 2, 1, 1, 30, 5}, {5, 3, 1, 1, 300, 5}},
			rollback{1, 2, 20, 0}, true},
		"acks, too": {[]look{{1, 1, 0, 0, 10, 5}, {2, 2, 1, 1, 30, 25}, {5, 3, 1, 1, 10, 5}},
			rollback{1, 2, 20, 20}, true},
		"all since the consumer started": {[]look{{1, 1, 0, 0, 10, 0}, {61, 2, 1, 1, 20, 0}, {600, 3, 2, 61, 90, 0},
			{700, 4, 2, 61, 20, 0}},
			rollback{61, 600, 80, 0}, true},
		"twice to the same": {[]look{{1, 1, 0, 0, 2000, 2000}, {2, 2, 1, 1, 2003, 2000}, {5, 3, 1, 1, 2000, 2000},
			{6, 4, 3, 5, 2003, 2000},
			{9, 5, 1, 1, 2000, 2000}}, rollback{1, 6, 3, 0}, true},
		"to before this consumer": {[]look{{1, 1, 0, 0, 100, 0}, {2, 2, 1, 1, 100, 100}, {3, 3, 0, 0, 100, 0}},
			rollback{0, 2, 0, 100}, true},
		"to before it, and as many were sent": {[]look{{1, 1, 0, 0, 10, 0}, {2, 2, 1, 1, 30, 0}, {3, 3, 0, 0, 40, 0}},
			rollback{0, 2, 20, 0}, true},
		"all is gone": {[]look{{1, 1, 0, 0, 10, 5}, {2, 2, 1, 1, 30, 25}, {3, 3, 0, 0, 0, 0}},
			rollback{0, 2, 30, 25}, true},
		"totals are smaller, and it is known": {[]look{{1, 1, 0, 0, 10, 5}, {2, 2, 1, 1, 7, 5}}, rollback{0, 1, 3, 0}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var r remembrance
			at := func(s int64) message.ServerTime {
				if s == 0 {
					return 0
				}
				return message.ServerTime(begin + s*second)
			}
			told := 0
			caller := script.Caller{ID: "a"}
			reply := func(l look) *script.FetchReply {
				if caller.N = l.call; l.call < 0 {
					caller = script.Caller{ID: "b", N: 1}
				}
				return &script.FetchReply{Now: at(l.at),
					Totals: script.Totals{Call: l.known, Heard: at(l.knownAt), Stored: l.stored, Acked: l.acked}}
			}
			var last rollback
			for i, l := range c.looks {
				if back, gone := r.see(&caller, reply(l)); gone {
					if told++; i == len(c.looks)-1 {
						last = back
					}
				}
			}
			want := rollback{at(int64(c.want.since)), at(int64(c.want.until)), c.want.sent, c.want.acked}
			if last != want || (told > 0) != c.gone {
				t.Errorf("%+v, told %d times, want %+v", last, told, want)
			}
			l := c.looks[len(c.looks)-1]
			if back, gone := r.see(&caller, reply(look{l.at + 1, caller.N + 1, caller.N, l.at, l.stored, l.acked})); gone {
				t.Errorf("it is said again: %+v", back)
			}
		})
	}
}
