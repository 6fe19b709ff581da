package web

import (
	"html/template"
	"net/http"
	"strings"
	"time"
)

// All times of a page are those of one zone, the reader's, and the page names it: in lists, fields, verdicts and charts, so that what is
// copied from one place selects the same in another. The script tells the zone in a cookie; without it the zone is UTC.

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
	if t.IsZero() {
		return ""
	}
	return t.In(r.lang.zoned()).Format("2006-01-02T15:04")
}
