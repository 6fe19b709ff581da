package features

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestDescribe: every option has its field.
func TestDescribe(t *testing.T) {
	t.Parallel()
	at := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	zero, two, none, minute := 0, 2, time.Duration(0), time.Minute
	for text, c := range map[string]struct {
		opts []delayqueue.MsgOption
		want delayqueue.Description
	}{
		"": {nil, delayqueue.Description{}},
		"delay=15m0s": {[]delayqueue.MsgOption{delayqueue.WithDelay(15 * time.Minute)},
			delayqueue.Description{Delay: 15 * time.Minute, Timed: true}},
		"delay=0s": {[]delayqueue.MsgOption{delayqueue.WithDelay(-1 * time.Second)},
			delayqueue.Description{Timed: true}},
		"schedule=2031-01-02T03:04:05Z": {[]delayqueue.MsgOption{delayqueue.WithSchedule(at)},
			delayqueue.Description{Schedule: at, Timed: true}},
		"key=k": {[]delayqueue.MsgOption{delayqueue.WithKey("k")}, delayqueue.Description{Key: "k"}},
		"key=k on-conflict=Keep key-hold=1m0s": {[]delayqueue.MsgOption{delayqueue.WithKey("k", delayqueue.Keep),
			delayqueue.WithKeyHold(minute)},
			delayqueue.Description{Key: "k", OnConflict: delayqueue.Keep, KeyHold: minute}},
		"key=of the payload on-conflict=Reschedule max-wait=1m0s": {
			[]delayqueue.MsgOption{delayqueue.WithPayloadKey(delayqueue.Reschedule),
				delayqueue.WithMaxWait(minute)},
			delayqueue.Description{PayloadKey: true, OnConflict: delayqueue.Reschedule, MaxWait: minute}},
		"key=k on-conflict=Append max-parts=5": {[]delayqueue.MsgOption{delayqueue.WithKey("k", delayqueue.Append),
			delayqueue.WithMaxParts(5)},
			delayqueue.Description{Key: "k", OnConflict: delayqueue.Append, MaxParts: 5}},
		"sequence=s:-3": {[]delayqueue.MsgOption{delayqueue.WithSequence("s", -3)},
			delayqueue.Description{Sequence: "s", Number: -3}},
		"retries=2 ttl=1m0s timeout=1m0s": {[]delayqueue.MsgOption{delayqueue.WithRetryCount(2),
			delayqueue.WithMsgTTL(minute), delayqueue.WithTimeout(minute)},
			delayqueue.Description{Retries: &two, TTL: minute, Timeout: &minute}},
		"timeout=0s": {[]delayqueue.MsgOption{delayqueue.WithTimeout(0)}, delayqueue.Description{Timeout: &none}},
		"deadline=2031-01-02T03:04:05Z retention=1m0s": {[]delayqueue.MsgOption{delayqueue.WithDeadline(at),
			delayqueue.WithRetention(minute)},
			delayqueue.Description{Deadline: at, Retention: minute}},
		"countdown=0 counts=k": {[]delayqueue.MsgOption{delayqueue.WithCountdown(0), delayqueue.WithCounts("k")},
			delayqueue.Description{Countdown: &zero, Counts: "k"}},
		`header a="1" header b="2"`: {[]delayqueue.MsgOption{delayqueue.WithHeader("b", "2"),
			delayqueue.WithHeader("a", "1")},
			delayqueue.Description{Headers: map[string]string{"a": "1", "b": "2"}}},
	} {
		got := delayqueue.Describe(c.opts...)
		written, err := json.Marshal(got)
		queuetest.Must(t, err)
		var read delayqueue.Description
		err = json.Unmarshal(written, &read)
		again := delayqueue.Describe(read.Options()...)
		if !got.Deadline.IsZero() || !got.Schedule.IsZero() { // in the zone of this machine
			got.Deadline, got.Schedule = got.Deadline.UTC(), got.Schedule.UTC()
			again.Deadline, again.Schedule = again.Deadline.UTC(), again.Schedule.UTC()
		}
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%q: %s is read as %+v, %v", text, written, read, err)
		}
		if c.want.Deadline, c.want.Schedule = c.want.Deadline.UTC(), c.want.Schedule.UTC(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, want %+v", text, got, c.want)
		}
	}
	got := delayqueue.Describe(delayqueue.WithDelay(time.Second), delayqueue.WithRetention(1), nil,
		delayqueue.WithKey("k"))
	if !errors.Is(got.Err, delayqueue.ErrBadOption) || got.Delay != time.Second || got.Key != "k" {
		t.Errorf("with a wrong option: %+v", got)
	}
	if none := delayqueue.Describe(delayqueue.WithRetryCount(-1)); none.Err != nil || none.Retries == nil ||
		*none.Retries != 0 {
		t.Errorf("no retries: %+v", none)
	}
	if again := delayqueue.Describe(got.Options()...); !reflect.DeepEqual(again, got) {
		t.Errorf("its options: %+v, want %+v", again, got)
	}
}

// TestDescribeTooManyHeaders: no sender makes a map of millions either.
func TestDescribeTooManyHeaders(t *testing.T) {
	var opts []delayqueue.MsgOption
	for i := range 10_000 {
		opts = append(opts, delayqueue.WithHeader(strconv.Itoa(i), ""))
	}
	if err := delayqueue.Describe(opts...).Err; err != nil {
		t.Error(err)
	}
	if err := delayqueue.Describe(append(opts, delayqueue.WithHeader("one more", ""))...).Err; !errors.Is(err,
		delayqueue.ErrBadOption) {
		t.Errorf("one more: %v", err)
	}
}

// TestStateAsText: a state is a word in JSON, and is read from it, alone and as a key of a map.
func TestStateAsText(t *testing.T) {
	t.Parallel()
	words := []string{"gone", "pending", "ready", "unack", "retry", "garbage", "done", "waiting"}
	for i, word := range words {
		s := delayqueue.State(i)
		wrote := map[delayqueue.State]delayqueue.InterceptResult{s: {State: s}}
		text, err := json.Marshal(wrote)
		queuetest.Must(t, err)
		var read map[delayqueue.State]delayqueue.InterceptResult
		if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read, wrote) ||
			string(text) != fmt.Sprintf(`{"%v":{"Intercepted":false,"State":"%[1]v","ID":""}}`, word) {
			t.Errorf("%v: %s is read as %v, %v", s, text, read, err)
		}
	}
	for _, text := range []string{`"consuming"`, `""`, `"State(9)"`, `1`} {
		s := delayqueue.StateRetry
		if err := json.Unmarshal([]byte(text), &s); err == nil || s != delayqueue.StateRetry {
			t.Errorf("%s is read as %v, %v", text, s, err)
		}
	}
}
