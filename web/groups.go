package web

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

const (
	keepGroups  = 30 * time.Second
	groupLook   = 2000 // messages that are looked at, the newest: what is wrong now is among them
	groupsShown = 10
)

// grouped is garbage by what went wrong, for the page of a queue: the largest groups.
func (p *queuePage) grouped(ctx context.Context, r *request) (err error) {
	if p.Counts.Garbage == 0 {
		return nil
	}
	p.Groups, err = shared(ctx, r.h, "groups "+r.Queue, keepGroups, func(ctx context.Context) (*delayqueue.ErrorGroups, error) {
		g, err := r.h.newMonitor(r.Queue).ErrorGroups(ctx, delayqueue.StateGarbage, delayqueue.Filter{LatestFirst: true}, groupLook, "")
		for _, one := range g.Groups[min(len(g.Groups), groupsShown):] {
			g.Others += one.Count
		}
		g.Groups = g.Groups[:min(len(g.Groups), groupsShown)]
		return g, err
	})
	return err
}
