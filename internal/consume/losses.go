package consume

import (
	"log/slog"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// maxLossNotes is how many losses may wait to be noted.
const maxLossNotes = 1000

// losses notes in the state of the queue that messages are gone which nobody took out. The note stays until a person
// accepts it (ops.Queue.AcceptBalance). Consumption does not wait for it.
type losses struct {
	settings  *Settings
	store     *script.Store
	lifecycle *lifecycle
	calls     script.LimitedCalls
	waiting   conc.Mailbox[script.Loss] // put by the poller; run is its reader
}

// note leaves a loss for run, if any message is gone.
func (l *losses) note(one script.Loss) {
	if one.Messages > 0 {
		l.waiting.PutAtMost(maxLossNotes, one)
	}
}

// run notes what waits, each loss once, however often it tries.
func (l *losses) run() {
	ctx := l.lifecycle.redisCtx
	for one, ok := l.waiting.One(); ok; one, ok = l.waiting.One() {
		err := l.calls.Call(ctx, func(c *script.Caller) error { return l.store.NoteLoss(ctx, c, one) })
		if err != nil && ctx.Err() == nil {
			l.settings.Log.Error("delayqueue: people on call are not told of a loss", slog.Any("error", err))
		}
	}
}

// close returns when all losses are noted, or when no call to Redis is made any more.
func (l *losses) close() {
	l.waiting.End()
	l.waiting.Running.Wait()
}
