package script

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/redis/go-redis/v9"
)

// A SettleEnd is what became of a settlement that a fetch followed.
type SettleEnd struct {
	Reply SettleReply
	Err   error
}

// SettleAndFetch makes one attempt at both calls, in this order and with one round trip. After an error without an answer each of
// them may have been carried out or not.
func (s *Store) SettleAndFetch(ctx context.Context, settler *Caller, settlements []Settlement, fetcher *Caller, q FetchRequest) (
	end SettleEnd, got FetchReply, err error) {
	q.Apart = 0 // few messages are expected, and a second round trip is what this call saves
	settle, fetch, lease := newSettleCall(settler, settlements, "+"), q.args(fetcher, s.shards), fetcher.lease()
	var first, second *redis.StringSliceCmd
	err = s.Attempt(ctx, link.Effort{Bytes: link.SizeOf(settle.args) + link.SizeOf(fetch), Call: func(ctx context.Context, cli redis.UniversalClient) error {
		*q.Began = time.Now()
		calls := func(name string, settleBody, fetchBody string) error {
			first = redis.NewStringSliceCmd(ctx, settle.script.command(name, settleBody, s.Keys, settle.args)...)
			second = redis.NewStringSliceCmd(ctx, FetchScript.command(name, fetchBody, s.Keys, fetch)...)
			pipe := cli.Pipeline()
			if err := errors.Join(pipe.Process(ctx, first), pipe.Process(ctx, second)); err != nil {
				return err
			}
			_, _ = pipe.Exec(ctx) // each command has its error
			return cmp.Or(first.Err(), second.Err())
		}
		large := link.SizeOf(settle.args) >= link.AttemptBytesPerSecond // after NOSCRIPT all of it would be written again
		err := error(nil)
		if !large {
			err = calls("evalsha", SettleScript.SHA, FetchScript.SHA)
		}
		if large || link.Says(err, "NOSCRIPT") {
			err = calls("eval", SettleScript.Text, FetchScript.Text)
		}
		if link.AnswerOf(err) != "" && (first.Err() == nil || second.Err() == nil) {
			return nil // it is of one of them alone
		}
		return err
	}})
	if err != nil { // an attempt that is not waited for any longer may still set first and second
		err = refusedBy(err)
		return SettleEnd{Err: err}, got, err
	}
	if err := first.Err(); err != nil {
		end.Err = refusedBy(s.Explain(err))
	} else {
		end.Reply, end.Err = settle.read(&reply{rest: first.Val()})
	}
	if err := second.Err(); err != nil {
		return end, got, refusedBy(s.Explain(err))
	}
	got, err = (&reply{rest: second.Val()}).fetched(lease, false)
	return end, got, err
}
