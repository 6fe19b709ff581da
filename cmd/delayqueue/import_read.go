package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// foreignText is what stands in a key of theirs.
type foreignText struct {
	text string
	err  error // of the server: the key is of another type
}

// readEach reads a text for each of them, in one round trip. Its own error is of the call as a whole.
func readEach(ctx context.Context, cli redis.UniversalClient, claims []claim,
	read func(redis.Pipeliner, string) *redis.StringCmd) ([]foreignText, error) {
	cmds := make([]*redis.StringCmd, len(claims))
	_, _ = cli.Pipelined(ctx, func(p redis.Pipeliner) error { // each has its error
		for i, c := range claims {
			cmds[i] = read(p, c.id)
		}
		return nil
	})
	texts := make([]foreignText, len(claims))
	for i, cmd := range cmds {
		text, err := cmd.Result()
		if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return texts, err
		}
		texts[i] = foreignText{text, err}
	}
	return texts, nil
}

// message makes one of a text that is there.
func (t foreignText) message(decode func() (foreignMessage, error)) (m foreignMessage) {
	err := t.err
	switch {
	case errors.Is(err, redis.Nil):
		return foreignMessage{gone: true}
	case err == nil:
		m, err = decode()
	}
	if err != nil {
		m.problem = leftUnreadable
	}
	return m
}
