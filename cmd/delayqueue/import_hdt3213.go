package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
)

// An hdtQueue is a queue of github.com/hdt3213/delayqueue. Its keys begin with <prefix>:<name>, or {<prefix>:<name>}
// with UseHashTagKey and on a Cluster:
//
//	…:pending     sorted set of ids by unix seconds
//	…:ready       list of ids that are due, the oldest at the end
//	…:unack       sorted set of ids that were handed out, by the unix seconds at which they come again
//	…:retry       list of ids that come again
//	…:retry:cnt   hash of ids: how often each may come again
//	…:garbage     set of ids that are about to be deleted
//	…:msg:<id>    payload; it expires an hour after it was due. The prefix of this key is dp, whatever the others have
type hdtQueue struct {
	cli          redis.UniversalClient
	prefix, name string
	tagged       bool
}

// hdtPrefix is theirs, unless UseCustomPrefix says otherwise.
const hdtPrefix = "dp"

func (q *hdtQueue) base() string { return q.keys(q.prefix) }

func (q *hdtQueue) keys(prefix string) string {
	if q.tagged {
		return "{" + prefix + ":" + q.name + "}:"
	}
	return prefix + ":" + q.name + ":"
}

// payload is where that of a message is: first where they keep it, then where one would look for it.
func (q *hdtQueue) payload(id string) string { return q.keys(hdtPrefix) + "msg:" + id }
func (q *hdtQueue) sought(id string) string  { return q.base() + "msg:" + id }

// there says whether anything of the queue is.
func (q *hdtQueue) there(ctx context.Context) (bool, error) {
	for _, name := range []string{"pending", "ready", "unack", "retry", "retry:cnt", "garbage", "delayqueue"} {
		if n, err := q.cli.Exists(ctx, q.base()+name).Result(); err != nil || n > 0 {
			return n > 0, err
		}
	}
	return false, nil
}

func (q *hdtQueue) find(ctx context.Context) error {
	is, err := q.there(ctx)
	if err == nil && !is {
		err = fail(exitNotFound, "there is no key %s…", q.base())
	}
	return err
}

// findTagged finds out whether its keys have hash tags.
func (q *hdtQueue) findTagged(ctx context.Context) error {
	plain, err := q.there(ctx)
	if err != nil {
		return err
	}
	q.tagged = true
	tagged, err := q.there(ctx)
	switch {
	case err != nil:
		return err
	case plain && tagged:
		return fail(exitUsage, "there are two such queues: say --hash-tag for the one in %s…, --hash-tag=false for the other",
			q.base())
	case !tagged:
		q.tagged = false
	}
	return nil
}

func (q *hdtQueue) structures(now time.Time) []structure {
	b := q.base()
	return []structure{
		{name: "ready", key: b + "ready", list: true},
		{name: "retry", key: b + "retry", list: true},
		{name: "pending", key: b + "pending"},
		{name: "unack", key: b + "unack", latest: float64(now.Unix())},
	}
}

func (q *hdtQueue) load(ctx context.Context, _ time.Time, claims []claim) ([]foreignMessage, error) {
	found := make([]foreignMessage, len(claims))
	texts, err := readEach(ctx, q.cli, claims, func(p redis.Pipeliner, id string) *redis.StringCmd {
		return p.Get(ctx, q.payload(id))
	})
	if err != nil {
		return found, err
	}
	ids := make([]string, len(claims))
	for i, c := range claims {
		ids[i] = c.id
	}
	counts, err := q.cli.HMGet(ctx, q.base()+"retry:cnt", ids...).Result()
	if err != nil {
		return found, err
	}
	var other []foreignText
	if q.prefix != hdtPrefix {
		if other, err = readEach(ctx, q.cli, claims, func(p redis.Pipeliner, id string) *redis.StringCmd {
			return p.Get(ctx, q.sought(id))
		}); err != nil {
			return found, err
		}
	}
	for i, text := range texts {
		if errors.Is(text.err, redis.Nil) && other != nil {
			text = other[i]
		}
		found[i] = text.message(func() (foreignMessage, error) { return hdtMessage(text.text, claims[i], counts[i]), nil })
	}
	return found, nil
}

// leftWorn is what was handed out for the last time: they delete it.
const leftWorn = "without a retry left"

// hdtMessage makes a message of a payload, and of how often it may come again; one without a count may not.
func hdtMessage(payload string, c claim, count any) foreignMessage {
	again, err := strconv.Atoi(fmt.Sprint(count))
	if err != nil {
		again = 0
	}
	if c.from == "unack" { // it was handed out, and comes again
		if again--; again < 0 {
			return foreignMessage{problem: leftWorn}
		}
	}
	const most = 1_000_000
	return foreignMessage{payload: payload,
		options: []delayqueue.MsgOption{delayqueue.WithRetryCount(min(max(again, 0), most))}}
}

// settle takes the claims back first: a payload that is left behind expires.
func (q *hdtQueue) settle(ctx context.Context, claims string, sent []claim) error {
	if _, err := q.cli.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range sent {
			p.HDel(ctx, q.base()+"retry:cnt", c.id)
			p.ZRem(ctx, claims, c.member)
		}
		return nil
	}); err != nil {
		return err
	}
	_, err := q.cli.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range sent {
			p.Del(ctx, q.payload(c.id))
			if q.prefix != hdtPrefix {
				p.Del(ctx, q.sought(c.id))
			}
		}
		return nil
	})
	return err
}

func (q *hdtQueue) left(ctx context.Context) (map[string]int64, error) {
	unack, err := q.cli.ZCount(ctx, q.base()+"unack", "("+strconv.FormatInt(time.Now().Unix(), 10), "+inf").Result()
	garbage, err2 := q.cli.SCard(ctx, q.base()+"garbage").Result()
	return map[string]int64{"handed out, or waiting after a failure": unack, "garbage": garbage}, errors.Join(err, err2)
}
