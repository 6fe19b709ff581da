package typed

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

type order struct {
	ID   int    `json:"id"`
	Item string `json:"item,omitempty"`
}

var closeOrder = Kind[order]("close-order")

// there says what comes back of a value that was sent.
func there[T any](t *testing.T, k KindOf[T], v T) {
	t.Helper()
	out, err := k.Outgoing(v)
	testkit.Must(t, err)
	got, err := k.decode("a payload", out.Payload)
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%v came back as %v, %v; payload %q", v, got, err, out.Payload)
	}
}

type orderPointer *order

// gobbed is a codec that is not JSON.
func gobbed[T any](k KindOf[T]) KindOf[T] {
	return k.WithCodec(func(v any) ([]byte, error) {
		var b bytes.Buffer
		err := gob.NewEncoder(&b).Encode(v)
		return b.Bytes(), err
	}, func(data []byte, v any) error { return gob.NewDecoder(bytes.NewReader(data)).Decode(v) })
}

func TestValuesComeBack(t *testing.T) {
	t.Parallel()
	there(t, closeOrder, order{42, "tea <&>"})
	there(t, Kind[*order]("p"), &order{42, "tea"})
	there(t, Kind[orderPointer]("p"), &order{42, "tea"})
	there(t, Kind[[]order]("s"), []order{{1, "a"}, {2, "b"}})
	there(t, Kind[map[string]int]("m"), map[string]int{"a": 1})
	there(t, Kind[string]("t"), "text")
	there(t, Kind[struct{}]("e"), struct{}{})
	there[any](t, Kind[any]("a"), "text")
	there(t, gobbed(closeOrder), order{42, "tea"})
	there(t, gobbed(Kind[*order]("p")), &order{42, "tea"})
}

// A codec may be one that knows messages alone, as that of protocol buffers does: where T is a pointer, it gets one
// of it.
func TestCodecOfPointersGetsTheType(t *testing.T) {
	t.Parallel()
	k := Kind[*order]("p").WithCodec(
		func(v any) ([]byte, error) { return json.Marshal(v.(*order)) },
		func(data []byte, v any) error { return json.Unmarshal(data, v.(*order)) })
	there(t, k, &order{42, "tea"})
}

// Versions differ: what one adds the other does not mind.
func TestFieldsMayDiffer(t *testing.T) {
	t.Parallel()
	got, err := closeOrder.decode("a payload", `{"id": 7, "color": "red"}`)
	if err != nil || got != (order{ID: 7}) {
		t.Error(got, err)
	}
}

func TestOutgoing(t *testing.T) {
	t.Parallel()
	mine := make([]delayqueue.MsgOption, 1, 2)
	mine[0] = delayqueue.WithRetryCount(7)
	out, err := closeOrder.Outgoing(order{ID: 1}, mine...)
	testkit.Must(t, err)
	settings := delayqueue.Describe(out.Options...)
	if settings.Err != nil || settings.Headers[Header] != "close-order" || *settings.Retries != 7 ||
		out.Payload != `{"id":1}` {
		t.Errorf("%v, payload %s", settings, out.Payload)
	}
	if mine[:2][1] != nil {
		t.Error("the caller's slice was written to")
	}
}

func TestWhatDoesNotEncode(t *testing.T) {
	t.Parallel()
	_, err := Kind[chan int]("c").Outgoing(nil)
	testkit.Has(t, err.Error(), `typed: kind "c"`, "chan int")
	var unsupported *json.UnsupportedTypeError
	if !errors.Is(err, ErrCodec) || !errors.As(err, &unsupported) {
		t.Error(err)
	}
	_, err = Kind[*order]("p").Outgoing(nil)
	if !errors.Is(err, ErrCodec) {
		t.Error(err)
	}
	testkit.Has(t, err.Error(), `typed: kind "p"`, "a nil *typed.order")
}

// Tasks of other libraries may have no payload. A result of no bytes is none.
func TestNoBytesAreTheZeroValue(t *testing.T) {
	t.Parallel()
	if v, err := closeOrder.decode("a payload", ""); err != nil || v != (order{}) {
		t.Error(v, err)
	}
	if v, err := Kind[*order]("p").decode("a payload", ""); err != nil || v == nil || *v != (order{}) {
		t.Error(v, err)
	}
	if v, err := Kind[struct{}]("report:daily").decode("a payload", ""); err != nil || v != struct{}{} {
		t.Error(v, err)
	}
	if _, err := decode[order](jsonCodec, "c", "the result of message x", ""); !errors.Is(err, ErrCodec) {
		t.Error(err)
	}
	if _, err := gobbed(closeOrder).decode("a payload", ""); !errors.Is(err, ErrCodec) {
		t.Error(err)
	}
}

func TestWhatDoesNotDecode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ payload, want string }{
		{`{"id": x}`, "of 9 bytes as typed.order, at byte 8: invalid character 'x'"},
		{`{"id": "seven"}`,
			"of 15 bytes as typed.order, at byte 14: json: cannot unmarshal string into Go struct field order.id of type int"},
		{`{"id": 7`, "of 8 bytes as typed.order, at byte 8: unexpected end of JSON input"},
		{`{"id": 7} {"id": 8}`, "at byte 11: invalid character '{' after top-level value"},
	} {
		_, err := closeOrder.decode("a payload", tt.payload)
		if !errors.Is(err, ErrCodec) {
			t.Errorf("%s: %v", tt.payload, err)
			continue
		}
		testkit.Has(t, err.Error(), `typed: kind "close-order": bad value or payload: decode a payload of `, tt.want)
	}
	_, err := gobbed(closeOrder).decode("a payload", "rubbish")
	if !errors.Is(err, ErrCodec) {
		t.Error(err)
	}
}

func TestPanicsOfKinds(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func(){
		`typed: a kind needs a name, not ""`:    func() { Kind[order]("") },
		`typed: a kind needs a name, not " \t"`: func() { Kind[order](" \t") },
		"typed: this kind was not made by typed.Kind or typed.CallKind": func() {
			_, _ = KindOf[order]{}.Outgoing(order{})
		},
		"typed: WithCodec: a function is nil: it takes one to encode and one to decode": func() {
			closeOrder.WithCodec(json.Marshal, nil)
		},
	} {
		panics(t, want, f)
	}
}

func panics(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		if got := recover(); got != want {
			t.Errorf("panic %v, want %q", got, want)
		}
	}()
	f()
}
