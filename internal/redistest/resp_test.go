package redistest

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// readersOf reads a stream that comes at once, and one that comes in single bytes.
func readersOf(stream string) map[string]*frameReader {
	return map[string]*frameReader{
		"whole":    newFrameReader(strings.NewReader(stream)),
		"by bytes": newFrameReader(iotest.OneByteReader(strings.NewReader(stream))),
	}
}

func TestReadReply(t *testing.T) {
	for _, tt := range []struct {
		name, frame string
		push        bool
	}{
		{"simple", "+OK\r\n", false},
		{"error", "-ERR no\r\n", false},
		{"long error", "-ERR " + strings.Repeat("x", 3*readerSize) + "\r\n", false},
		{"integer", ":-12\r\n", false},
		{"bulk", "$5\r\na\r\nbc\r\n", false},
		{"empty bulk", "$0\r\n\r\n", false},
		{"null bulk", "$-1\r\n", false},
		{"big bulk", "$300000\r\n" + strings.Repeat("y", 300000) + "\r\n", false},
		{"null array", "*-1\r\n", false},
		{"empty array", "*0\r\n", false},
		{"array", "*3\r\n:1\r\n*2\r\n+a\r\n$-1\r\n$1\r\nb\r\n", false},
		{"null", "_\r\n", false},
		{"double", ",-inf\r\n", false},
		{"boolean", "#t\r\n", false},
		{"big number", "(-3492890328409238509324850943850943825024385\r\n", false},
		{"blob error", "!5\r\nERR x\r\n", false},
		{"verbatim", "=7\r\ntxt:a\r\n\r\n", false},
		{"map", "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n", false},
		{"set", "~2\r\n+a\r\n,1.5\r\n", false},
		{"attribute", "|1\r\n+ttl\r\n:3600\r\n*1\r\n:7\r\n", false},
		{"two attributes", "|1\r\n+a\r\n:1\r\n|1\r\n+b\r\n:2\r\n+OK\r\n", false},
		{"attribute within", "*2\r\n|1\r\n+a\r\n:1\r\n:7\r\n:8\r\n", false},
		{"push", ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n", true},
		{"push after an attribute", "|1\r\n+a\r\n:1\r\n>1\r\n+x\r\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream := tt.frame + "+next\r\n"
			for name, r := range readersOf(stream) {
				got, push, err := r.readReply([]byte("before"))
				if err != nil || string(got) != "before"+tt.frame || push != tt.push {
					t.Errorf("%s: %.60q, push %v, %v", name, got, push, err)
				}
				got, _, err = r.readReply(nil)
				if err != nil || string(got) != "+next\r\n" {
					t.Errorf("%s: next is %.60q, %v", name, got, err)
				}
				if _, _, err = r.readReply(nil); !errors.Is(err, io.EOF) {
					t.Errorf("%s: end is %v", name, err)
				}
			}
		})
	}
}

func TestReadCommand(t *testing.T) {
	for _, tt := range []struct {
		name, frame string
		words       []string
	}{
		{"array", "*2\r\n$3\r\nGeT\r\n$4\r\nk\r\n1\r\n", []string{"GeT", "k\r\n1"}},
		{"empty argument", "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", []string{"ECHO", ""}},
		{"no words", "*0\r\n", nil},
		{"null", "*-1\r\n", nil},
		{"inline", "PING  hello\r\n", []string{"PING", "hello"}},
		{"inline, bare line feed", "PING\n", []string{"PING"}},
		{"empty line", "\r\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream := tt.frame + "NEXT\r\n"
			for name, r := range readersOf(stream) {
				got, words, err := r.readCommand(nil)
				if err != nil || string(got) != tt.frame || !slices.Equal(words, tt.words) {
					t.Errorf("%s: %q, %q, %v", name, got, words, err)
				}
				if _, words, err := r.readCommand(got[:0]); err != nil || !slices.Equal(words, []string{"NEXT"}) {
					t.Errorf("%s: next is %q, %v", name, words, err)
				}
			}
		})
	}
}

func TestNotRESP(t *testing.T) {
	for _, reply := range []string{
		"HTTP/1.1 400\r\n", "\r\n", "$x\r\n", "$3\r\nabcd\r\n", "*1\r\n\r\n", "$-2\r\n", "$99999999999\r\n",
		strings.Repeat("*1\r\n", maxDepth+2),
	} {
		if _, _, err := newFrameReader(strings.NewReader(reply)).readReply(nil); !errors.Is(err, errProtocol) {
			t.Errorf("reply %.40q: %v", reply, err)
		}
	}
	for _, cmd := range []string{"*1\r\n:1\r\n", "*x\r\n", "*1\r\n$-1\r\n", "*1\r\n$1\r\nabc\r\n"} {
		if _, _, err := newFrameReader(strings.NewReader(cmd)).readCommand(nil); !errors.Is(err, errProtocol) {
			t.Errorf("command %q: %v", cmd, err)
		}
	}
}

func TestCutOffIsNoProtocolError(t *testing.T) {
	const frame = "*2\r\n$4\r\nECHO\r\n$2\r\nab\r\n"
	for n := range len(frame) {
		_, _, err := newFrameReader(strings.NewReader(frame[:n])).readCommand(nil)
		if err == nil || errors.Is(err, errProtocol) {
			t.Errorf("command cut after %d bytes: %v", n, err)
		}
		_, _, err = newFrameReader(strings.NewReader(frame[:n])).readReply(nil)
		if err == nil || errors.Is(err, errProtocol) {
			t.Errorf("reply cut after %d bytes: %v", n, err)
		}
	}
}
