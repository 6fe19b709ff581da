package schedule_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/delayqueuetest"
	"github.com/go-delayqueue/delayqueue/schedule"
)

// TestInARig: in a bubble of testing/synctest a scheduler runs by the clock that the rig moves.
func TestInARig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := delayqueuetest.NewAt(t,
			time.Date(2031, 3, 30, 0, 59, 0, 0, time.UTC)) // a minute before summer time begins in Berlin
		var at []string
		queue := rig.Queue("reports").WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			_, instant := schedule.Of(msg)
			if late := rig.Now().Sub(instant); late < 0 || late > time.Second {
				t.Errorf("%v is handled %v after it", instant, late)
			}
			at = append(at, instant.UTC().Format("Mon 15:04"))
			return nil
		})
		s := schedule.New(queue)
		if err := s.Set(t.Context(),
			schedule.Entry{Name: "report", Cron: "*/15 2-3 * * *", Zone: "Europe/Berlin"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		rig.Advance(32 * time.Minute)
		cancel()
		<-ended
		if want := []string{"Sun 01:00", "Sun 01:15", "Sun 01:30"}; !slices.Equal(at,
			want) { // from 3:00 on: there is no 2:00
			t.Errorf("%q, want %q", at, want)
		}
	})
}
