package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// templates are those of each page, by language and file.
type templates map[string]map[string]*template.Template

// loadTemplates reads all files. Each but layout.html and parts.html is a page, with a template "content" and others of its own.
func (h *Handler) loadTemplates() templates {
	all := templates{}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err)
	}
	for _, l := range languages {
		base := template.Must(template.New("").Funcs(l.functions()).Funcs(template.FuncMap{"asset": h.assetAddress}).
			ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", "templates/forms.html"))
		all[l.tag] = map[string]*template.Template{}
		for _, file := range files {
			name := strings.TrimSuffix(path.Base(file), ".html")
			if name != "layout" && name != "parts" && name != "forms" {
				all[l.tag][name] = template.Must(template.Must(base.Clone()).ParseFS(templateFiles, file))
			}
		}
	}
	return all
}

// functions are those of templates. Each of them that makes words makes those of the language.
func (l *language) functions() template.FuncMap {
	return template.FuncMap{
		"t":       l.say,      // {{t "paused until %s" (clock .Until)}}: a text of the catalogue
		"num":     l.number,   // 12,345
		"dur":     l.duration, // 4 min
		"in":      l.in,       // in 4 min, 4 min ago
		"rate":    l.rate,
		"shown":   shown,
		"visible": visible,
		"stateof": l.state,
		"act":     l.act,
		"link":    linkTo, // {{link "queue" "q" .Name}}
		"spark":   l.spark,
		"exact":   l.exact,

		"ratelimit":   l.rateLimit, // of delayqueue.Limits, "" for none
		"placeslimit": l.placesLimit,
	}
}

// linkTo is the address of a page with these names and values in its query.
func linkTo(name string, pairs ...any) (string, error) {
	if len(pairs)%2 != 0 {
		return "", fmt.Errorf("link %s: a name without a value", name)
	}
	query := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		query.Set(fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1]))
	}
	return link(name, query), nil
}

// maxShown is how many bytes of a text are shown where it has no page of its own.
const maxShown = 500

// maxMarks is how many combining marks a character keeps, more than any language needs: others pile up, or widen a page without a place
// where the line could be broken.
const maxMarks = 8

// shown is a text of somebody else's with what has no look of its own made visible: control characters, those that turn the
// direction of what follows, and bytes that are no UTF-8. It is cut if it is long.
func shown(text string) string {
	cut := len(text) > maxShown
	var out strings.Builder
	marks := 0 // in a row
	for i, c := range text[:min(len(text), maxShown)] {
		if !unicode.In(c, unicode.Mn, unicode.Me) {
			marks = 0
		} else if marks++; marks > maxMarks {
			continue
		}
		switch {
		case c == '\uFFFD' && !strings.HasPrefix(text[i:], "\uFFFD"):
			if i+3 < maxShown || !cut { // not what the cut has halved
				fmt.Fprintf(&out, `\x%02x`, text[i])
			}
		case c == '\n' || c == '\t':
			out.WriteByte(' ')
		case invisible(c):
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			out.WriteRune(c)
		}
	}
	if cut {
		out.WriteString("…")
	}
	return out.String()
}

// invisible are controls and marks of direction.
func invisible(c rune) bool {
	return c < ' ' || c >= 0x7f && c < 0xa0 || c >= 0x200b && c <= 0x200f || c >= 0x2028 && c <= 0x202e || c >= 0x2060 && c <= 0x206f ||
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
	files, err := fs.Glob(assetFiles, "assets/*")
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		text, err := assetFiles.ReadFile(file)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		all[path.Base(file)] = &asset{text, kindOf(file), hex.EncodeToString(sum[:8])}
	}
	return all
}

// kindOf does not ask the machine, which may know another.
func kindOf(file string) string {
	switch path.Ext(file) {
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(file))
}

// assetAddress has the content's tag in it, so a new version is another address.
func (h *Handler) assetAddress(name string) string { return name + "?v=" + h.assets[name].tag }

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
	if strings.Contains(r.Header.Get("If-None-Match"), `"`+a.tag+`"`) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	limitWrite(w, timeLimit)
	if r.Method == http.MethodGet {
		_, _ = w.Write(a.text)
	}
}
