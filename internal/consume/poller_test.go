package consume

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

const serverStart, serverSecond = message.ServerTime(queuetest.Clock), message.ServerTime(1_000_000)

// TestPollStateUntilIsBounded: no instant overflows.
func TestPollStateUntilIsBounded(t *testing.T) {
	here := time.Now()
	s := pollState{clock: serverStart, clockAt: here}
	for _, at := range []message.ServerTime{math.MaxInt64, 1_790_000_000_000_000_000,
		message.ServerTime(message.Forever)} {
		if d := s.until(at, here); d < 100*365*24*time.Hour {
			t.Errorf("%d is %v from now", at, d)
		}
	}
	for _, at := range []message.ServerTime{math.MinInt64, -1, 0, serverStart} {
		if d := s.until(at, here.Add(time.Second)); d != -time.Second {
			t.Errorf("%d is %v from now", at, d)
		}
	}
}

// TestPollStateServesItsWake: a consumer that took a marker polls at its instant, unless it has no room; it keeps the
// marker through a poll that came a bit early, and gives it up when the poll says that something else is next.
func TestPollStateServesItsWake(t *testing.T) {
	here := time.Now()
	wake := serverStart + 3*serverSecond
	fresh := func() *pollState {
		return &pollState{interval: time.Minute, nextPoll: here.Add(time.Minute), clock: serverStart, clockAt: here,
			pollAt: wake}
	}
	s := fresh()
	if d := s.idle(here, true); d != 3*time.Second {
		t.Errorf("with room it waits %v", d)
	}
	if d := s.idle(here, false); d != time.Minute {
		t.Errorf("without room it waits %v", d)
	}
	if s.due(here.Add(2*time.Second)) || !s.due(here.Add(3*time.Second)) {
		t.Error("it is not due at the instant of the wake-up alone")
	}
	for name, c := range map[string]struct {
		next  message.ServerTime
		rearm bool
		held  message.ServerTime
		more  bool
	}{
		"a bit early":               {wake, false, wake, false},
		"served, and nothing left":  {0, false, 0, false},
		"served, and there is more": {serverStart + serverSecond, false, 0, true},
		"something else is next":    {wake + serverSecond, false, 0, false},
		"handed on":                 {wake, true, 0, false},
	} {
		after := fresh()
		after.noteReply(serverStart+2*serverSecond, c.next, c.rearm, here, here.Add(time.Millisecond))
		if after.pollAt != c.held || after.moreDue != c.more {
			t.Errorf("%s: it holds %d, more is due %v; want %d, %v", name, after.pollAt, after.moreDue, c.held, c.more)
		}
	}
}

// TestPollStateWithoutWakeUps: what is next is polled for at its instant, and so is what this process sends.
func TestPollStateWithoutWakeUps(t *testing.T) {
	here := time.Now()
	s := pollState{interval: time.Minute}
	s.wakeUpsOff.Store(true)
	s.noteReply(serverStart, serverStart+10*serverSecond, false, here, here)
	s.nextPoll = here.Add(time.Minute)
	for _, c := range []struct {
		sent time.Time
		want time.Duration
	}{
		{here.Add(20 * time.Second), 10 * time.Second},
		{here.Add(5 * time.Second), 5 * time.Second},
	} {
		if s.hinted(c.sent); s.idle(here, true) != c.want {
			t.Errorf("it waits %v, want %v", s.idle(here, true), c.want)
		}
	}
	s.wakeUpsOff.Store(false)
	s.pollAt = 0
	if s.hinted(here); s.pollAt != 0 {
		t.Error("with wake-ups it needs no hint")
	}
}

// TestPollStateMissedWake: only what came due since the last poll, and is late, should have woken somebody.
func TestPollStateMissedWake(t *testing.T) {
	s := pollState{clock: serverStart}
	for due, want := range map[message.ServerTime]bool{
		serverStart: false, serverStart + serverSecond: true, serverStart + 3*serverSecond: false,
		serverStart + 2*serverSecond - 100_000: false,
		serverStart + 2*serverSecond - 100_001: true,
	} {
		e := message.Envelope{Payload: "x"}
		text := e.Encode(message.When{Us: int64(due), Absolute: true})
		if got := s.missedWake([]string{"rubbish", text}, serverStart+2*serverSecond); got != want {
			t.Errorf("due %v after the last poll: %v, want %v", due.Sub(serverStart), got, want)
		}
	}
	// A message with a lane may have waited for its turn.
	e := message.Envelope{Lane: message.Lane{Name: "l", Width: 1}, Payload: "x"}
	text := e.Encode(message.When{Us: int64(serverStart + serverSecond), Absolute: true})
	if s.missedWake([]string{text}, serverStart+2*serverSecond) {
		t.Error("a message with a lane counts")
	}
}

// TestRoomIsLimited: by the settings, and by what is not settled yet.
func TestRoomIsLimited(t *testing.T) {
	for name, c := range map[string]struct {
		set  Settings
		room int
		held heldSums
		want int
	}{
		"no bound":                  {Settings{}, 10, heldSums{deliveries: 100, bytes: 1 << 30}, 10},
		"a script call's bound":     {Settings{}, 10_000, heldSums{}, script.MaxBatch},
		"too much is not settled":   {Settings{}, 10, heldSums{deliveries: 8 + 4*script.MaxBatch}, 0},
		"much is not settled":       {Settings{}, 10, heldSums{deliveries: 4 + 4*script.MaxBatch}, 4},
		"the fetch limit":           {Settings{FetchLimit: 5}, 10, heldSums{deliveries: 2}, 3},
		"the fetch limit is lower":  {Settings{FetchLimit: 5}, 10, heldSums{deliveries: 9}, 0},
		"bytes are left":            {Settings{MaxBytes: 100}, 10, heldSums{deliveries: 3, bytes: 12}, 10},
		"bytes for some are left":   {Settings{MaxBytes: 100}, 10, heldSums{deliveries: 3, bytes: 60}, 1},
		"a byte is left":            {Settings{MaxBytes: 100}, 10, heldSums{deliveries: 1, bytes: 99}, 1},
		"any number of bytes":       {Settings{MaxBytes: math.MaxInt}, 10, heldSums{deliveries: 3, bytes: 60}, 10},
		"all bytes are held":        {Settings{MaxBytes: 100}, 10, heldSums{deliveries: 1, bytes: 100}, 0},
		"the workers have no room":  {Settings{}, 0, heldSums{}, 0},
		"the fetch limit is higher": {Settings{FetchLimit: 50}, 10, heldSums{deliveries: 2}, 10},
	} {
		c.set.Base = t.Context()
		p := &poller{settings: &c.set, member: &member{Portion: Portion{AtMost: 8}}, leases: new(leases)}
		p.leases.held.held, p.leases.held.bytes = make([]*delivery, c.held.deliveries), c.held.bytes
		if got, _ := p.limit(); min(c.room, got) != c.want {
			t.Errorf("%s: %d, want %d", name, min(c.room, got), c.want)
		}
	}
}

// TestReplyBytes: what an attempt asks for after so many replies did not come through.
func TestReplyBytes(t *testing.T) {
	for all, want := range map[int][]int{script.MaxBatchBytes: {script.MaxBatchBytes, smallReply, 1, 1, 0, 0},
		1000: {1000, 1000, 1, 1, 0, 0}} {
		var asked []int
		for lost := range want {
			asked = append(asked, replyBytes(all, lost))
		}
		if !slices.Equal(asked, want) {
			t.Errorf("asked for %v, want %v", asked, want)
		}
	}
}
