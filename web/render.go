package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// templates are those of each page, by language and file.
type templates map[string]map[string]*template.Template

// pages and assets are the same for all Handlers of a process.
var (
	pages  = sync.OnceValue(loadTemplates)
	assets = sync.OnceValue(loadAssets)
)

// loadTemplates reads all files. Each but layout.html and parts.html is a page, with a template "content" and others
// of its own.
func loadTemplates() templates {
	all := templates{}
	files, _ := fs.Glob(templateFiles, "templates/*.html") // no error but for a bad pattern
	for _, l := range languages {
		base := template.Must(template.New("").Funcs(l.functions()).Funcs(template.FuncMap{"asset": assetAddress}).
			ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", "templates/forms.html"))
		all[l.Tag] = map[string]*template.Template{}
		for _, file := range files {
			name := strings.TrimSuffix(path.Base(file), ".html")
			if name != "layout" && name != "parts" && name != "forms" {
				all[l.Tag][name] = template.Must(template.Must(base.Clone()).ParseFS(templateFiles, file))
			}
		}
	}
	return all
}

// functions are those of templates. Each of them that makes words makes those of the language.
func (l *language) functions() template.FuncMap {
	return template.FuncMap{
		"t":        l.say,    // {{t "paused until %s" (clock .Until)}}: a text of the catalogue
		"num":      l.number, // 12,345
		"messages": l.messages,
		"dur":      l.duration, // 4 min
		"in":       l.in,       // in 4 min, 4 min ago
		"rate":     l.rate,
		"shown":    shown,
		"visible":  visible,
		"stateof":  l.state,
		"act":      l.act,
		"link":     func(page string, pairs ...any) string { return linkOf(page, nil, pairs...) },
		"before":   func(t time.Time, d time.Duration) time.Time { return t.Add(-d) },
		"spark":    l.spark,
		"exact":    l.exact,

		"ratelimit":   l.rateLimit, // of delayqueue.Limits, "" for none
		"placeslimit": l.placesLimit,
	}
}

// maxShown is how many bytes of a text are shown where it has no page of its own.
const maxShown = 500

// maxMarks is how many combining marks a character keeps, more than any language needs: others pile up, or widen a
// page without a place where the line could be broken.
const maxMarks = 8

// shown is a text of somebody else's on one line, made visible, and cut if it is long.
func shown(text string) string {
	end := len(text)
	if end > maxShown {
		for end = maxShown; end > maxShown-utf8.UTFMax && !utf8.RuneStart(text[end]); {
			end--
		}
	}
	marks := 0 // in a row
	line := strings.Map(func(c rune) rune {
		if !unicode.In(c, unicode.Mn, unicode.Me) {
			marks = 0
		} else if marks++; marks > maxMarks {
			return -1
		}
		if c == '\n' || c == '\t' {
			return ' '
		}
		return c
	}, visible(text[:end]))
	if end < len(text) {
		line += "…"
	}
	return line
}

// visible is a text as it is, its lines too, with what has no look of its own made visible: control characters, those
// that turn the direction of what follows, and bytes that are no UTF-8.
func visible(text string) string {
	var out strings.Builder
	for i, c := range text {
		switch {
		case c == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&out, `\x%02x`, text[i])
		case c == '\n' || c == '\t' || !invisible(c):
			out.WriteRune(c)
		case c > 0xffff:
			fmt.Fprintf(&out, `\U%08x`, c)
		default:
			fmt.Fprintf(&out, `\u%04x`, c)
		}
	}
	return out.String()
}

// invisible are controls and marks of direction.
func invisible(c rune) bool {
	return c < ' ' || c >= 0x7f && c < 0xa0 || c >= 0x200b && c <= 0x200f || c >= 0x2028 && c <= 0x202e || c >= 0x2060 &&
		c <= 0x206f ||
		c == 0x061c || c == 0xfeff || c >= 0xfff9 && c <= 0xfffb || c >= 0xe0000 && c <= 0xe007f
}

// An asset is a file that pages ask for.
type asset struct {
	text []byte
	kind string
	tag  string // of its content
}

func loadAssets() map[string]*asset {
	all := map[string]*asset{}
	files, _ := fs.Glob(assetFiles, "assets/*")
	for _, file := range files {
		text, err := assetFiles.ReadFile(file)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		all[path.Base(file)] = &asset{text, kinds[path.Ext(file)], hex.EncodeToString(sum[:8])}
	}
	return all
}

// kinds does not ask the machine, which may know others.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// assetAddress has the content's tag in it, so a new version is another address.
func assetAddress(name string) string { return name + "?v=" + assets()[name].tag }

func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	if !isGet(r) {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("ETag", `"`+a.tag+`"`)
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == a.tag {
		w.Header().Set("Cache-Control", "private, max-age=604800, immutable")
	}
	w.Header().Set("Content-Type", a.kind)
	limitWrite(w, timeLimit)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.text))
}
