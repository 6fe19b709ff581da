package message_test

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// exampleBytes are those of an example in hexadecimal digits.
func exampleBytes(t *testing.T, kind string) string {
	t.Helper()
	var bytes []byte
	for line := range strings.Lines(queuetest.RedisExample(t, kind)) {
		digits, _, _ := strings.Cut(line, "  ")
		part, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		bytes = append(bytes, part...)
	}
	return string(bytes)
}

// TestRedisPageMessages: the envelopes and the fail record that docs/redis.md shows are read as they stand there.
func TestRedisPageMessages(t *testing.T) {
	bytes := exampleBytes(t, "envelope")
	want := message.Envelope{Due: 1790000000000000, Key: "order-42", Retries: 3, TTL: 10 * time.Minute,
		Headers: map[string]string{"trace": "7f3a"}, Payload: "close"}
	if text := want.Encode(message.When{Us: want.Due, Absolute: true}); text != bytes {
		t.Errorf("the envelope is %x here, %x there", text, bytes)
	}
	key := bytes[1 : 1+16+2+len(want.Key)] // and due, which stand where they stood
	for _, text := range []string{bytes, "\x02" + key + exampleBytes(t, "fields")} {
		if e, err := message.DecodeEnvelope(text); err != nil || !reflect.DeepEqual(e, want) {
			t.Errorf("%x is read as %+v, %v", text, e, err)
		}
	}
	r, err := message.ParseFail(strings.ReplaceAll(queuetest.RedisExample(t, "fail"), "␞", "\x1e"))
	if err != nil || r != (message.FailRecord{Delivery: 3, Failures: 2, When: 1790000061250000, Errors: r.Errors}) {
		t.Errorf("the fail record is %+v, %v", r, err)
	}
	all := message.KeptErrors(r.Errors, 5)
	if len(all) != 2 || all[0].At.UnixMicro() != 1790000061250000 || all[0].Delivery != 2 ||
		all[0].Text != "charge: the bank said no" ||
		all[1].At.UnixMicro() != 1790000001000000 || all[1].Delivery != 1 || all[1].Text != "charge: no answer" {
		t.Errorf("its errors are %+v", all)
	}
}
