package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// What others wrote into Redis reaches a terminal, a shell or a file only through these.

// printable keeps what others wrote from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}

// oneLine keeps what others wrote from making lines of its own.
func oneLine(s string) string { return lineBreaks.Replace(printable(s)) }

var lineBreaks = strings.NewReplacer("\n", " ", "\t", " ")

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+:,./-]+$`)

// shellQuote makes one word for a shell of any bytes: what cannot be shown stands escaped in $'…'.
func shellQuote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	plain := utf8.ValidString(s)
	for _, r := range s {
		plain = plain && unicode.IsPrint(r)
	}
	if plain {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r) && (r != utf8.RuneError || n > 1):
			b.WriteRune(r)
		default:
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		}
		i += n
	}
	b.WriteString("'")
	return b.String()
}

// printJSON prints one object on a line of its own.
func printJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := os.Stdout.Write(escapeJSON(b.Bytes()))
	return err
}

// escapeJSON escapes what is no printable character: DEL, C1, what turns the direction of text, and so on.
func escapeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// lastInstant is the last one that JSON has room for; another program may have written a later one.
var lastInstant = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// utc is an instant as --json prints it.
func utc(t time.Time) time.Time {
	switch t = t.UTC(); {
	case t.After(lastInstant):
		return lastInstant
	case t.Year() < 0:
		return time.Time{}
	}
	return t
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = utc(t)
	return &t
}
