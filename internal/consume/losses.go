package consume

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file tells people on call of a loss: by a field of state, which stays until somebody accepts the loss, and by
// an entry of the journal. A queue that somebody has deleted has lost nothing. The journal says so, which this user
// perhaps may not read: then such a queue counts as lost.

// A loss waits here for a while.
type loss struct {
	script.Loss
	noticed time.Time
	before  message.ServerTime // of the last fetch that saw the queue whole
	detail  string             // for the journal
}

// lossRest is how long a loss waits, because DeleteQueue writes its entry up to two seconds after it has deleted the
// queue. Only tests change it.
var lossRest = 3 * time.Second

const (
	lossTime    = 2 * time.Second    // bounds the calls about a loss
	lossMinute  = time.Minute        // so long an entry of the journal stands for all losses that are noticed
	clockSkew   = 10 * time.Second   // between servers of shards, at most
	lossToken   = "6c6f737300000000" // of all entries about losses, so that note.lua finds one of the last minute
	lossEntries = 20                 // so many entries, at most, come after that of DeleteQueue
)

// noticeLoss keeps a loss for tellLosses, together with one of the same kind that waits.
func (p *poller) noticeLoss(now, before message.ServerTime, messages int64, all bool, detail string) {
	if last := len(p.losses) - 1; last >= 0 && !all && !p.losses[last].All {
		p.losses[last].Messages += messages
		return
	}
	p.losses = append(p.losses, loss{script.Loss{At: now, Messages: messages, All: all}, time.Now(), before, detail})
}

// tellLosses tells of losses that have waited for long enough. If Redis does not answer, the next fetch tries again.
func (p *poller) tellLosses(now time.Time) {
	for len(p.losses) > 0 && (now.Sub(p.losses[0].noticed) >= lossRest || p.lifecycle.stopping()) {
		ctx, cancel := context.WithTimeout(p.lifecycle.redisCtx, lossTime)
		err := p.tellLoss(ctx, &p.losses[0])
		cancel()
		if link.Transient(err) {
			return
		}
		if err != nil && !link.Denied(err) {
			p.settings.Log.Error("delayqueue: people on call are not told of a loss", slog.Any("error", err))
		}
		p.losses = p.losses[1:]
	}
}

func (p *poller) tellLoss(ctx context.Context, l *loss) error {
	if deleted, err := p.deletedSince(ctx, l.before); deleted || err != nil {
		return err
	}
	err := p.calls.Call(ctx, func(c *script.Caller) error { return p.store.NoteLoss(ctx, c, l.Loss) })
	if err != nil {
		return err
	}
	text, err := json.Marshal(struct { // as ops reads it
		By     string `json:"by"`
		Act    string `json:"act"`
		Detail string `json:"how"`
		N      int64  `json:"n"`
	}{hostname(), journal.Loss, l.detail, l.Messages})
	if err != nil {
		return err
	}
	n := script.JournalNote{Word: script.JournalDone, Token: lossToken, Text: string(text)}
	return link.Repeat(ctx, func() error {
		_, err := p.consumer.queue.Note(ctx, &n, lossMinute)
		return err
	})
}

// deletedSince says whether the journal has an entry of DeleteQueue that is not older. A user who may not read the
// journal learns nothing.
func (p *poller) deletedSince(ctx context.Context, since message.ServerTime) (bool, error) {
	got, err := link.Read(ctx, func(ctx context.Context) (script.JournalReply, error) {
		return p.consumer.queue.Journal(ctx, script.JournalRequest{Limit: lossEntries})
	})
	if link.Denied(err) {
		return false, nil
	}
	for _, line := range got.Entries {
		var entry struct {
			Act string `json:"act"`
		}
		words := strings.SplitN(line.Line, " ", 4)
		if json.Unmarshal([]byte(words[len(words)-1]), &entry) == nil && entry.Act == journal.DeleteQueue &&
			message.ServerTime(script.ScoreInstant(line.Made)).Sub(since) > -clockSkew {
			return true, nil
		}
	}
	return false, err
}
