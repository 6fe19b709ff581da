package web

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/health"
)

// This file says things in the reader's language. The catalogue's keys are the English texts, their places are all
// %s. Each language has a file of its own.

// A language is one that pages can be had in.
type language struct {
	Tag   string            // as browsers call it
	Name  string            // as those call it who speak it
	words map[string]string // by the English text; nil: English itself
	zone  *time.Location    // of the reader
}

// zoneName is how a page names it.
func (l *language) zoneName() string { return l.zone.String() }

// clockOf writes an instant in that zone, with its name.
func (l *language) clockOf(t time.Time, layout string) string {
	return t.In(l.zone).Format(layout) + " " + l.zoneName()
}

// languages are all; the first one is for whom nothing else is known.
var languages = []*language{
	{Tag: "en", zone: time.UTC, Name: "English"},
	{Tag: "zh", zone: time.UTC, Name: "中文", words: chinese},
}

// langCookie keeps what somebody has chosen.
const langCookie = "delayqueue_lang"

func languageNamed(tag string) *language {
	tag, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
	for _, l := range languages {
		if l.Tag == tag {
			return l
		}
	}
	return nil
}

// languageOf is what the query says, or what was chosen before, or what the browser likes best.
func languageOf(r *http.Request, query url.Values) *language {
	if l := languageNamed(query.Get("lang")); l != nil {
		return l
	}
	if cookie, err := r.Cookie(langCookie); err == nil {
		if l := languageNamed(cookie.Value); l != nil {
			return l
		}
	}
	best, most := languages[0], 0.0
	for i, part := range strings.SplitN(r.Header.Get("Accept-Language"), ",", 20) {
		tag, weight, _ := strings.Cut(part, ";")
		q := 1.0
		if text, ok := strings.CutPrefix(strings.TrimSpace(weight), "q="); ok {
			q, _ = strconv.ParseFloat(text, 64)
		}
		if l := languageNamed(tag); l != nil && q > most && i < 19 {
			best, most = l, q
		}
	}
	return best
}

// remember keeps what the query says, for the folder of these pages.
func (l *language) remember(w http.ResponseWriter, r *request) {
	if chosen := languageNamed(r.Arg("lang")); chosen != nil && chosen.Tag == l.Tag {
		http.SetCookie(w, &http.Cookie{Name: langCookie, Value: l.Tag, MaxAge: 365 * 24 * 3600, HttpOnly: true,
			SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil})
	}
}

// say is an English text in this language.
func (l *language) say(english string, args ...any) string {
	if text, ok := l.words[english]; ok {
		english = text
	}
	if len(args) == 0 {
		return english
	}
	return fmt.Sprintf(english, args...)
}

// number writes a whole number with commas, of any integer type.
func (l *language) number(n any) string {
	text := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	var out strings.Builder
	for i, c := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(c)
	}
	return sign + out.String()
}

// messages writes how many there are.
func (l *language) messages(n any) string {
	if number := l.number(n); number != "1" {
		return l.say("%s messages", number)
	}
	return l.say("1 message")
}

// duration is as exact as one cares: two units at most.
func (l *language) duration(d time.Duration) string {
	d = d.Abs()
	two := func(big time.Duration, bigWord string, small time.Duration, smallWord string) string {
		n, rest := int(d/big), int(d%big/small)
		if rest == 0 || n >= 10 {
			return l.say(bigWord, strconv.Itoa(n))
		}
		return l.say(bigWord, strconv.Itoa(n)) + " " + l.say(smallWord, strconv.Itoa(rest))
	}
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return l.say("%s ms", strconv.Itoa(int(d.Milliseconds())))
	case d < time.Minute:
		return l.say("%s s", strconv.Itoa(int(d/time.Second)))
	case d < time.Hour:
		return two(time.Minute, "%s min", time.Second, "%s s")
	case d < day:
		return two(time.Hour, "%s h", time.Minute, "%s min")
	}
	return two(day, "%s d", time.Hour, "%s h")
}

// in is an instant as seen from now.
func (l *language) in(t time.Time) string {
	switch d := time.Until(t); {
	case t.IsZero():
		return "–"
	case d >= time.Second:
		return l.say("in %s", l.duration(d))
	case d <= -time.Second:
		return l.say("%s ago", l.duration(d))
	}
	return l.say("now")
}

// when is an instant as a <time>. The page names another zone than UTC once, and its title does.
func (l *language) when(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	here := t.In(l.zone)
	layout := "2006-01-02 15:04:05"
	if here.Format("2006-01-02") == time.Now().In(l.zone).Format("2006-01-02") {
		layout = "15:04:05"
	}
	text := here.Format(layout)
	if l.zoneName() == "UTC" {
		text += " UTC"
	}
	return template.HTML(`<time datetime="` + t.UTC().Format("2006-01-02T15:04:05.000Z") + `" title="` +
		template.HTMLEscapeString(l.clockOf(t, "2006-01-02 15:04:05.000")) + `">` + text + `</time>`)
}

// rate writes a number a second.
func (l *language) rate(r health.Rate) string {
	if r.PerSecond >= 1000 {
		return l.number(int64(r.PerSecond + 0.5))
	}
	return r.String()
}

// A verdict is what internal/health thinks of something, in the reader's words. The name of its level is a class of
// the stylesheet.
type verdict struct {
	Level health.Level
	Text  string
	Link  string // to the page of what it is about; "": there is none
}

// verdict is one of what is found of a queue.
func (l *language) verdict(q *health.Look, v health.Verdict) verdict {
	out := verdict{Level: v.Level, Text: l.text(v.Text)}
	switch v.Code {
	case health.Lane:
		lane := ""
		if q.Lane != nil {
			lane = q.Lane.Name
		}
		out.Link = linkOf("lanes", nil, "q", q.Name, "lane", lane)
	case health.Incomplete:
		out.Link = linkOf("message", nil, "q", q.Name, "id", q.Stuck[0].ID)
	case health.NotSent:
		out.Link = linkOf("schedules", nil, "q", q.Name)
	case health.Hung:
		out.Link = linkOf("consumers", nil, "q", q.Name)
	}
	return out
}

// text writes what internal/health says.
func (l *language) text(t health.Text) string {
	return t.In(func(english string) string { return l.say(english) }, func(arg any) string {
		switch arg := arg.(type) {
		case time.Duration:
			return l.duration(arg)
		case time.Time:
			return l.clock(arg)
		case int64:
			return l.number(arg)
		case error:
			return l.trouble(arg)
		}
		return shown(fmt.Sprint(arg))
	})
}

// clock is an instant in the middle of words.
func (l *language) clock(t time.Time) string {
	if time.Until(t).Abs() > 12*time.Hour {
		return l.clockOf(t, "2006-01-02 15:04")
	}
	return l.clockOf(t, "15:04")
}

// All times of a page are those of one zone, the reader's, and the page names it: in lists, fields, verdicts and
// charts, so that what is copied from one place selects the same in another. The script tells the zone in a cookie;
// without it the zone is UTC.

const (
	zoneCookie  = "delayqueue_zone"
	longestZone = 64 // bytes of a name
)

// zoneNamed returns nil for none, and for one that this machine does not know.
func zoneNamed(name string) *time.Location {
	if name == "" || name == "Local" || len(name) > longestZone {
		return nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return zone
}

func zoneOf(r *http.Request) *time.Location {
	if cookie, err := r.Cookie(zoneCookie); err == nil {
		if zone := zoneNamed(strings.ReplaceAll(cookie.Value, "%2F", "/")); zone != nil {
			return zone
		}
	}
	return time.UTC
}

// Zone is the name of the page's zone.
func (r *request) Zone() string { return r.lang.zoneName() }

// When is an instant as a <time>, for templates.
func (r *request) When(t time.Time) template.HTML { return r.lang.when(t) }

// Field is an instant as a field for one holds it, "" for none.
func (r *request) Field(t time.Time) string {
	switch here := t.In(r.lang.zone); {
	case t.IsZero():
		return ""
	case t.Equal(t.Truncate(time.Minute)):
		return here.Format("2006-01-02T15:04")
	default: // a link to the messages of an hour ends just before the next one
		return here.Format("2006-01-02T15:04:05.999")
	}
}
