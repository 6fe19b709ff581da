package delayqueue

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestSettingsOf(t *testing.T) {
	for name, opts := range map[string][]MsgOption{
		"nothing": nil,
		"all": {
			WithRetryCount(0), WithMsgTTL(time.Minute), WithTimeout(time.Hour), WithRetention(time.Hour),
			WithHeader("b", "2"), WithHeader("a", "1"),
		},
		"any time": {WithTimeout(0)},
	} {
		said, err := SettingsOf(opts...)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		var read MessageSettings
		if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read, said) {
			t.Errorf("%s: %s is read as %+v, want %+v, %v", name, text, read, said, err)
		}
		drafts := [2]draft{}
		for i, opts := range [][]MsgOption{opts, read.Options()} {
			for _, opt := range opts {
				if err := opt(&drafts[i]); err != nil {
					t.Error(err)
				}
			}
		}
		if !reflect.DeepEqual(drafts[0], drafts[1]) {
			t.Errorf("%s: %+v, want %+v", name, drafts[1], drafts[0])
		}
	}
	for name, opt := range map[string]MsgOption{
		"nil": nil, "wrong": WithMsgTTL(-1), "key": WithKey("k"), "payload key": WithPayloadKey(), "hold": WithKeyHold(time.Hour),
		"wait": WithMaxWait(time.Hour), "parts": WithMaxParts(5), "sequence": WithSequence("s", 1), "delay": WithDelay(0),
		"schedule": WithSchedule(time.Now()), "deadline": WithDeadline(time.Now()),
	} {
		if _, err := SettingsOf(opt); !errors.Is(err, ErrBadOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
