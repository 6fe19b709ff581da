package web

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue/ops"
)

// What a page shows of a message is bounded before it is laid out: layout multiplies, and anybody who may send
// chooses the text. A payload that would become too large as JSON is shown as text.
const (
	payloadShown = 64 << 10  // bytes of a payload, or of a result, on one page
	jsonShown    = 256 << 10 // of JSON once it is laid out
	jsonDepth    = 100       // arrays and objects within each other
	hexShown     = 8 << 10
	headersShown = 200
)

// A payload is what is shown of one.
type payload struct {
	As       string // "json", "text" or "hex"
	Text     string
	Redacted bool // it stands for the payload, as Config.Payload says
	Size     int  // of all, bytes
	Shown    int  // of these
	Ways     []fact
}

// payloadOf shows what the query asks for. What Config.Payload says stands in its place.
func (r *request) payloadOf(m *ops.MessageStatus) *payload {
	text := m.Payload
	if len(m.Parts) > 1 {
		text = strings.Join(m.Parts, "\n")
	}
	redact := r.h.cfg.Payload
	if redact != nil {
		text = redact(r.Queue, m)
	}
	p := &payload{As: r.Arg("as"), Redacted: redact != nil, Size: len(text)}
	var laidOut bytes.Buffer
	begins := strings.TrimLeft(text, " \t\r\n") // a number or a word alone is shown as text
	isJSON := (strings.HasPrefix(begins, "{") || strings.HasPrefix(begins, "[")) && fitsAsJSON(text) &&
		utf8.ValidString(text) &&
		json.Indent(&laidOut, []byte(text), "", "  ") == nil
	if p.As != "text" && p.As != "hex" || p.As == "json" && !isJSON {
		p.As = "json"
		if !isJSON {
			p.As = "text"
		}
		if !isJSON && !utf8.ValidString(text) {
			p.As = "hex"
		}
	}
	switch p.As {
	case "json":
		p.Shown, p.Text = len(text), visible(laidOut.String())
	case "text":
		p.Shown = min(len(text), payloadShown)
		p.Text = visible(text[:p.Shown])
	default:
		p.Shown = min(len(text), hexShown)
		p.Text = hex.Dump([]byte(text[:p.Shown]))
	}
	for _, as := range []fact{{"JSON", "json"}, {r.lang.say("text"), "text"}, {r.lang.say("hex"), "hex"}} {
		if as.Value != "json" || isJSON {
			p.Ways = append(p.Ways, as)
		}
	}
	return p
}

const saysMost = 160 // bytes of a payload in a table

// payloadBegins is the first bytes of a payload, or of what Config.Payload says in its place.
func (r *request) payloadBegins(m *ops.MessageStatus) string {
	switch redact := r.h.cfg.Payload; {
	case errors.Is(m.Broken, ops.ErrNotRead):
		return r.lang.say("too large to be read here")
	case redact != nil:
		return beginning(redact(r.Queue, m), saysMost)
	}
	return beginning(m.Payload, saysMost)
}

func beginning(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// fitsAsJSON says whether json.Indent makes no more of a text than may be shown. It makes nothing itself.
func fitsAsJSON(text string) bool {
	size, depth, quoted := len(text), 0, false
	if size > jsonShown {
		return false
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			size += 1 + 2*depth
		case c == ',':
			size += 1 + 2*depth
		case c == '}' || c == ']':
			depth = max(depth-1, 0)
			size += 1 + 2*depth
		case c == ':':
			size++
		}
		if depth > jsonDepth || size > jsonShown {
			return false
		}
	}
	return true
}
