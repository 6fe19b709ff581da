package web

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/export"
	"github.com/go-delayqueue/delayqueue/ops"
)

// What a list or a search finds, as a file. It is written page by page while it is read, for as long as the client
// takes it and the Handler is open. A file that was cut off ends without the end of its transfer, so that a browser
// does not show it as whole.

const exportTake = time.Minute // within which a client takes a page

// exportKinds are the types of files.
var exportKinds = map[string]string{"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}

func (h *Handler) serveExport(w http.ResponseWriter, r *request) error {
	if err := r.admit(Look, true); err != nil {
		return err
	}
	s, err := r.selection()
	as := r.Arg("as")
	if err == nil && exportKinds[as] == "" {
		err = errNoPage
	}
	if err == nil {
		err = h.readers.enter("")
	}
	if err != nil {
		return err
	}
	defer h.readers.leave("")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.done, cancel)()
	how := ops.Find{Messages: searchPage, Limit: searchPage, NoPayload: h.cfg.Payload != nil, Filter: s.Filter,
		States: states}
	how.Filter.LatestFirst = r.Arg("order") == "latest"
	if !s.Everywhere() {
		how.States = []delayqueue.State{s.State}
	}
	found, err := r.exportPage(ctx, s.Text, how, "")
	if err != nil { // nothing was written: an error is a page
		return err
	}
	file := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' {
			return c
		}
		return '_'
	}, beginning(r.Queue, 100))
	w.Header().Set("Content-Type", exportKinds[as])
	w.Header().Set("Content-Disposition",
		mime.FormatMediaType("attachment", map[string]string{"filename": file + "." + as}))
	write, err := exportTo(w, as)
	for err == nil {
		limitWrite(w, exportTake)
		for _, match := range found.Matches {
			if err = write(export.Of(r.exported(match.MessageStatus))); err != nil {
				break
			}
		}
		if found.Next == "" || err != nil {
			break
		}
		found, err = r.exportPage(ctx, s.Text, how, found.Next)
	}
	if err != nil {
		if r.Context().Err() == nil {
			h.log.Warn("delayqueue: an export was cut off", "queue", r.Queue, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	return nil
}

// exportPage reads a page, and rests as long as that took, because others need the server, too.
func (r *request) exportPage(ctx context.Context, text string, how ops.Find, cursor string) (*ops.Found, error) {
	begun := time.Now()
	one, cancel := context.WithTimeout(ctx, r.h.bounds.request)
	defer cancel()
	found, err := r.Monitor().Find(one, text, how, cursor)
	if err == nil && found.Next != "" {
		select {
		case <-time.After(time.Since(begun)):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if errors.Is(err, ops.ErrBadCursor) {
		err = errNoPage
	}
	return found, err
}

// exported is a message with the payload that the reader may see.
func (r *request) exported(m *ops.MessageStatus) *ops.MessageStatus {
	redact := r.h.cfg.Payload
	if redact == nil {
		return m
	}
	shown := *m
	shown.Payload, shown.Parts = redact(r.Queue, m), nil
	return &shown
}

// exportTo returns what writes one message. It writes the first line of a CSV.
func exportTo(w http.ResponseWriter, as string) (write func(export.Message) error, err error) {
	if as == "csv" {
		lines := &export.CSV{Writer: w}
		return func(m export.Message) error { return lines.Write(m) }, lines.Header(export.Message{})
	}
	lines := json.NewEncoder(w)
	return func(m export.Message) error { return lines.Encode(m) }, nil
}
