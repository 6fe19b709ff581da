package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue/internal/export"
)

// Texts from Redis, which anybody may have written, reach a terminal, a shell or a file only through these functions.

// printable replaces characters that could control the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}

// oneLine is printable, without line breaks.
func oneLine(s string) string { return lineBreaks.Replace(printable(s)) }

var lineBreaks = strings.NewReplacer("\n", " ", "\t", " ")

// plainWord is a word that a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+:,./-]+$`)

// shellQuote makes one word for a shell of any bytes. Bytes that cannot be shown are escaped in $'…'.
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
func printJSON(v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if err == nil {
		_, err = os.Stdout.Write(escapeJSON(b.Bytes()))
	}
	unsaid = cmp.Or(unsaid, err)
}

// escapeJSON escapes characters that are not printable: DEL, C1, marks of direction, and so on.
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

// What --json prints of a message, and of an instant.
type messageJSON = export.Message

var jsonOf, utc, instant = export.Of, export.UTC, export.Instant
