package delayqueue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// answering makes a client answer every command with one reply, without a server.
type answering struct{ reply any }

func (answering) DialHook(next redis.DialHook) redis.DialHook { return next }
func (answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(onceCmd).SetVal(a.reply)
		return nil
	}
}

// list is a reply of many parts.
func list(parts ...any) []any { return parts }

// TestBadReplies: each typed call takes the reply that its script makes, and refuses any other.
func TestBadReplies(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	none := list()
	fetchReply := func(i int, part any) []any {
		reply := list("5", "0", list("a"), list("envelope"), none, list("id", "envelope", "fail"), int64(0), int64(0), int64(0))
		if i >= 0 {
			reply[i] = part
		}
		return reply
	}
	for name, c := range map[string]struct {
		call func(s *store) error
		good []any
		bad  []any
	}{
		"send": {
			func(s *store) error {
				_, err := s.send(ctx, newCaller(), []*outgoing{msg("a", 0), msg("b", 0)}, 0, 0)
				return err
			},
			[]any{list("5", ""), list("5", "1=a 2=b ")},
			[]any{nil, "OK", int64(1), none, list("5"), list(nil, ""), list("now", ""), list(int64(5), ""), list("5", nil), list("5", int64(1)),
				list("5", "1"), list("5", "x=a"), list("5", "0=a"), list("5", "3=a"), list("5", "-1=a")},
		},
		"fetch": {
			func(s *store) error {
				_, err := s.fetch(ctx, newCaller(), 1, false, &fetchSettings{lease: time.Second, maxLosses: 3})
				return err
			},
			[]any{fetchReply(-1, nil), fetchReply(1, "6")},
			[]any{nil, "OK", none, fetchReply(-1, nil)[:8], fetchReply(0, "now"), fetchReply(0, nil), fetchReply(1, int64(0)),
				fetchReply(2, "a"), fetchReply(2, list(int64(1))), fetchReply(2, none), fetchReply(3, none), fetchReply(3, list(nil)),
				fetchReply(4, nil), fetchReply(4, list(int64(1))), fetchReply(5, list("id")), fetchReply(5, list("id", "envelope", nil)),
				fetchReply(6, "0"), fetchReply(7, nil), fetchReply(8, none)},
		},
		"settle": {
			func(s *store) error {
				_, err := s.settle(ctx, newCaller(), []outcome{ack("a"), ends(outcomeRetry, "b", 1, 0, "x")}, 1)
				return err
			},
			[]any{list("5", ""), list("5", "1 2 ")},
			[]any{nil, "", none, list("5"), list("now", ""), list("5", nil), list("5", int64(1)), list("5", "x"), list("5", "0"), list("5", "3"), list("5", "1 -1")},
		},
		"extend": {
			func(s *store) error {
				_, err := s.extend(ctx, time.Second, []*delivery{held("a"), held("b")})
				return err
			},
			[]any{list(int64(leaseRenewed), int64(leaseGone))},
			[]any{nil, "", none, list(int64(0)), list(int64(0), "1"), list(nil, int64(0))},
		},
		"intercept": {
			func(s *store) error { _, err := s.intercept(ctx, newCaller(), "id", "a"); return err },
			[]any{"gone", "pending", "ready", "unack", "retry", "garbage"},
			[]any{nil, "", "Gone", "elsewhere", int64(0), none, list("gone")},
		},
		"counts": {
			func(s *store) error { _, err := s.counts(ctx); return err },
			[]any{list(int64(1), int64(2), int64(3), int64(4), int64(5))},
			[]any{nil, "", none, list(int64(1), int64(2), int64(3), int64(4)), list(int64(1), int64(2), "3", int64(4), int64(5))},
		},
		"bzpopmin": {
			func(s *store) error {
				_, err := s.popWake(ctx, s.cli.(*redis.Client), time.Second)
				return err
			},
			[]any{list("wake", "w", "5"), list("wake", "w", 5.0)}, // RESP2, RESP3
			[]any{nil, "", none, list("wake", "w"), list("wake", "w", "soon"), list("wake", "w", "5.5"), list("wake", "w", int64(5)), list("wake", "w", nil)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := func(reply any) error {
				cli := redis.NewClient(&redis.Options{})
				defer cli.Close()
				cli.AddHook(answering{reply})
				return c.call(newStore(cli, "dq", "q"))
			}
			for _, reply := range c.good {
				if err := call(reply); err != nil {
					t.Errorf("%#v: %v", reply, err)
				}
			}
			for _, reply := range c.bad {
				if err := call(reply); !errors.Is(err, ErrBadReply) {
					t.Errorf("%#v: %v, want ErrBadReply", reply, err)
				}
			}
		})
	}
}

// TestBadReplyIsAnError of the call that got it, which is not repeated.
func TestBadReplyIsAnError(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{})
	defer cli.Close()
	cli.AddHook(answering{"OK"})
	p := NewPublisher("bad-replies", cli)
	for call, do := range map[string]func() error{
		"SendDelayMsg": func() error { return p.SendDelayMsg("x", time.Hour) },
		"TryIntercept": func() error { _, err := p.TryIntercept(&MessageInfo{ID: "the id"}); return err },
		"GetPendingCount": func() error {
			_, err := NewMonitor("bad-replies", cli).GetPendingCount(context.Background())
			return err
		},
	} {
		if err := do(); !errors.Is(err, ErrBadReply) || !strings.Contains(err.Error(), `"bad-replies"`) {
			t.Errorf("%s: %v, want ErrBadReply and the queue", call, err)
		}
	}
}
