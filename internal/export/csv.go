package export

import (
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A CSV writes structs of one type as lines. Its columns have the names of their JSON fields, in this order, and the
// first line has these names. The zero value with a Writer is ready.
type CSV struct {
	Writer io.Writer
	out    *csv.Writer
}

// Header writes the first line, unless it was written, with the names of a struct. Write does so, too: a file that has
// no other line needs Header.
func (c *CSV) Header(v any) error {
	if c.out == nil {
		var names []string
		for _, f := range fields(v) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
		c.out = csv.NewWriter(c.Writer)
		_ = c.out.Write(names) // Error tells
		c.out.Flush()
	}
	return c.out.Error()
}

// fields are those of a struct that have a column.
func fields(v any) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(reflect.TypeOf(v)), func(f reflect.StructField) bool {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return f.Anonymous || name == ""
	})
}

// Write writes one struct.
func (c *CSV) Write(v any) error {
	_ = c.Header(v) // Error tells
	value := reflect.ValueOf(v)
	var cells []string
	for _, f := range fields(v) {
		_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		cell := ""
		if one := value.FieldByIndex(f.Index); !one.IsZero() || options == "" {
			cell = cellOf(one)
		}
		cells = append(cells, cell)
	}
	_ = c.out.Write(cells)
	c.out.Flush()
	return c.out.Error()
}

// cellOf is a value as text. What has parts is JSON.
func cellOf(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case time.Time:
		return value.Format(time.RFC3339Nano)
	case []byte:
		return plain(base64.StdEncoding.EncodeToString(value)) // it may begin with +
	case string:
		return plain(value)
	}
	if kind := v.Kind(); kind == reflect.Map || kind == reflect.Slice {
		text, _ := json.Marshal(v.Interface()) // texts and numbers can be written
		return string(text)
	}
	return fmt.Sprint(v.Interface())
}

// plain puts a ' before a text that a spreadsheet would take for a formula (OWASP, CSV injection).
func plain(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if strings.IndexAny(text, "=+-@\t\r\n") == 0 {
		return "'" + text
	}
	return text
}
