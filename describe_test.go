package delayqueue

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

// TestDescribe: every option has its field.
func TestDescribe(t *testing.T) {
	t.Parallel()
	at := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	two, none, minute := 2, time.Duration(0), time.Minute
	for text, c := range map[string]struct {
		opts []MsgOption
		want Description
	}{
		"":                              {nil, Description{}},
		"delay=15m0s":                   {[]MsgOption{WithDelay(15 * time.Minute)}, Description{Delay: 15 * time.Minute, Timed: true}},
		"delay=0s":                      {[]MsgOption{WithDelay(-1 * time.Second)}, Description{Timed: true}},
		"schedule=2031-01-02T03:04:05Z": {[]MsgOption{WithSchedule(at)}, Description{Schedule: at, Timed: true}},
		"key=k":                         {[]MsgOption{WithKey("k")}, Description{Key: "k"}},
		"key=k on-conflict=Keep key-hold=1m0s": {[]MsgOption{WithKey("k", Keep), WithKeyHold(minute)},
			Description{Key: "k", OnConflict: Keep, KeyHold: minute}},
		"key=of the payload on-conflict=Reschedule max-wait=1m0s": {[]MsgOption{WithPayloadKey(Reschedule), WithMaxWait(minute)},
			Description{PayloadKey: true, OnConflict: Reschedule, MaxWait: minute}},
		"key=k on-conflict=Append max-parts=5": {[]MsgOption{WithKey("k", Append), WithMaxParts(5)},
			Description{Key: "k", OnConflict: Append, MaxParts: 5}},
		"sequence=s:-3": {[]MsgOption{WithSequence("s", -3)}, Description{Sequence: "s", Number: -3}},
		"retries=2 ttl=1m0s timeout=1m0s": {[]MsgOption{WithRetryCount(2), WithMsgTTL(minute), WithTimeout(minute)},
			Description{Retries: &two, TTL: minute, Timeout: &minute}},
		"timeout=0s": {[]MsgOption{WithTimeout(0)}, Description{Timeout: &none}},
		"deadline=2031-01-02T03:04:05Z retention=1m0s": {[]MsgOption{WithDeadline(at), WithRetention(minute)},
			Description{Deadline: at, Retention: minute}},
		`header a="1" header b="2"`: {[]MsgOption{WithHeader("b", "2"), WithHeader("a", "1")},
			Description{Headers: map[string]string{"a": "1", "b": "2"}}},
	} {
		got := Describe(c.opts...)
		if !got.Deadline.IsZero() || !got.Schedule.IsZero() { // in the zone of this machine
			got.Deadline, got.Schedule = got.Deadline.UTC(), got.Schedule.UTC()
		}
		if c.want.Deadline, c.want.Schedule = c.want.Deadline.UTC(), c.want.Schedule.UTC(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, want %+v", text, got, c.want)
		}
		if got.String() != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	got := Describe(WithDelay(time.Second), WithRetryCount(-1), nil, WithKey("k"))
	if !errors.Is(got.Err, ErrBadOption) || got.Delay != time.Second || got.Key != "k" {
		t.Errorf("with a wrong option: %+v", got)
	}
}
