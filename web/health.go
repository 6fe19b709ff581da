package web

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/redis/go-redis/v9"
)

// The page of the servers' health. All of it is one INFO of each server, at most every ten seconds.

const keepHealth = 10 * time.Second

// A healthPage is what it shows.
type healthPage struct {
	verdict // the worst
	Servers []serverHealth
}

// serverHealth is what one server says of itself.
type serverHealth struct {
	Number int // servers have no address here
	Checks []serverCheck
}

// A serverCheck is one thing that was looked at.
type serverCheck struct {
	verdict
	Name   string
	Advice string // "" if there is none
}

// answers are those of the servers that answer.
type answers struct {
	infos []health.Info
	away  error // of one that does not; nil: all do
}

func (h *Handler) health(ctx context.Context, r *request) (any, error) {
	all, err := shared(ctx, h, "health", keepHealth, func(ctx context.Context) (a answers, err error) {
		ctx, cancel := context.WithTimeout(ctx, h.bounds.queue) // sooner than the request ends
		defer cancel()
		if a.infos, err = health.Infos(ctx, h.cli); len(a.infos) > 0 {
			a.away, err = err, nil
		}
		return a, err
	})
	if err != nil && redis.HasErrorPrefix(err, "NOPERM") {
		return &healthPage{verdict: verdict{Level: health.Notice,
			Text: r.lang.say("The Redis user of this page may not ask how the server is. +info lets it.")}}, nil
	}
	if err != nil {
		return nil, err
	}
	p := &healthPage{verdict: verdict{Level: health.Fine}}
	for i, one := range all.infos {
		s := serverHealth{Number: i + 1}
		for _, c := range one.Checks() {
			s.Checks = append(s.Checks, serverCheck{verdict{Level: c.Level, Text: r.lang.text(c.Found)},
				r.lang.text(c.Name), r.lang.text(c.Advice)})
			p.Level = max(p.Level, c.Level)
		}
		p.Servers = append(p.Servers, s)
	}
	if all.away != nil {
		p.Level = health.Critical
	}
	switch {
	case all.away != nil:
		p.Text = r.lang.say("Not all servers answer")
	case p.Level == health.Critical:
		p.Text = r.lang.say("Redis is in trouble")
	case p.Level == health.Warning:
		p.Text = r.lang.say("Something about Redis needs attention")
	default:
		p.Text = r.lang.say("Redis is well")
	}
	return p, nil
}
