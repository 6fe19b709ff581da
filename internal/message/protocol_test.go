package message

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// protocolBytes are those of an example in hexadecimal digits.
func protocolBytes(t *testing.T, kind string) string {
	t.Helper()
	var bytes []byte
	for line := range strings.Lines(queuetest.ProtocolExample(t, kind)) {
		digits, _, _ := strings.Cut(line, "  ")
		part, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		bytes = append(bytes, part...)
	}
	return string(bytes)
}

// TestProtocolMessages: the envelopes and the fail record that docs/PROTOCOL.md shows are read, and written, as they
// stand there.
func TestProtocolMessages(t *testing.T) {
	bytes := protocolBytes(t, "envelope")
	want := Envelope{Due: 1790000000000000, Key: "order-42", Retries: 3, TTL: 10 * time.Minute,
		Headers: map[string]string{"trace": "7f3a"}, Payload: "close"}
	if e, err := DecodeEnvelope(bytes); err != nil || !reflect.DeepEqual(e, want) {
		t.Errorf("the envelope is %+v, %v", e, err)
	}
	if text := want.Encode(When{Us: want.Due, Absolute: true}); text != bytes {
		t.Errorf("the envelope is %x here, %x there", text, bytes)
	}
	key := bytes[1 : 1+16+2+len(want.Key)] // and due, which stand where they stood
	if text, fields := want.inFields(nil), "\x02"+key+protocolBytes(t, "fields"); text != fields {
		t.Errorf("in fields it is %x here, %x there", text, fields)
	}
	r, err := ParseFail(strings.ReplaceAll(queuetest.ProtocolExample(t, "fail"), "␞", errorMark))
	errors := []keptError{{time.UnixMicro(1790000061250000), 2, "charge: the bank said no"},
		{time.UnixMicro(1790000001000000), 1, "charge: no answer"}}
	if all := KeptErrors(r.Errors, 5); err != nil || r != (FailRecord{3, 2, 0, 1790000061250000, r.Errors, false}) ||
		!reflect.DeepEqual(all, errors) {
		t.Errorf("the fail record is %+v, %+v, %v", r, all, err)
	}
}
