package typed

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// ErrCodec: a value could not be encoded, or a payload or a result not be decoded. The error around it says which kind,
// and why; of JSON also where.
var ErrCodec = errors.New("bad value or payload")

// A codec turns values into payloads and back.
type codec struct {
	marshal   func(v any) ([]byte, error)
	unmarshal func(data []byte, v any) error
	isJSON    bool
}

var jsonCodec = codec{json.Marshal, json.Unmarshal, true}

// encode makes a payload, or a result, of kind.
func (c codec) encode(kind string, v any) (string, error) {
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && p.IsNil() {
		return "", fmt.Errorf("typed: kind %q: %w: encode: a nil %T", kind, ErrCodec, v)
	}
	data, err := c.marshal(v)
	if err != nil {
		return "", fmt.Errorf("typed: kind %q: %w: encode %T: %w", kind, ErrCodec, v, err)
	}
	return string(data), nil
}

// decode reads what is a payload, or a result, of kind.
func decode[T any](c codec, kind, what, text string) (v T, err error) {
	target := zero(&v)
	if err := c.unmarshal([]byte(text), target); err != nil {
		return v, fmt.Errorf("typed: kind %q: %w: decode %s of %d bytes as %v%s: %w", kind, ErrCodec, what, len(text),
			reflect.TypeFor[T](), position(err), err)
	}
	return v, nil
}

// zero sets v to its zero value, or to a pointer to one, and returns what decodes into it.
func zero[T any](v *T) any {
	if p := reflect.ValueOf(v).Elem(); p.Kind() == reflect.Pointer {
		p.Set(reflect.New(p.Type().Elem()))
		return p.Interface()
	}
	return v
}

// position says where an error of JSON is.
func position(err error) string {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf(", at byte %d", syntax.Offset)
	case errors.As(err, &mismatch):
		return fmt.Sprintf(", at byte %d", mismatch.Offset)
	}
	return ""
}
