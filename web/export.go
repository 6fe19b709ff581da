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
// takes it, the reader may look, and the Handler is open. While shards do not answer it is without their messages, and
// its name says so. A file that was cut off ends without the end of its transfer, so that a browser does not show it
// as whole.

const exportTake = time.Minute // within which a client takes a message

var errElsewhere = &httpError{http.StatusForbidden, "This download was asked for from another site"}

// exportKinds are the types of files.
var exportKinds = map[string]string{"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}

func (h *Handler) serveExport(w http.ResponseWriter, r *request) error {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return errElsewhere
	}
	if err := r.admit(Look, true); err != nil {
		return err
	}
	s, err := r.selection()
	as := r.Arg("as")
	if err == nil && exportKinds[as] == "" {
		err = errNoPage
	}
	who := r.visitor()
	if err == nil {
		err = h.exports.enter(who)
	}
	if err != nil {
		return err
	}
	defer h.exports.leave(who)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer h.endWith(w, cancel)()
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
	defer func() { // an error page would look like the end of the file
		if bad := recover(); bad != nil {
			if bad != http.ErrAbortHandler {
				h.panicked(bad, "export of queue", r.Queue)
			}
			panic(http.ErrAbortHandler)
		}
	}()
	whole := r.Part == ""
	w.Header().Set("Content-Type", exportKinds[as])
	w.Header().Set("Content-Disposition",
		mime.FormatMediaType("attachment", map[string]string{"filename": fileOf(r.Queue, whole) + "." + as}))
	write, err := exportTo(w, as)
	for err == nil {
		for _, match := range found.Matches {
			limitWrite(w, exportTake)
			if err = h.done.Err(); err == nil {
				err = write(export.Of(r.exported(match.MessageStatus)))
			}
			if err != nil {
				break
			}
		}
		if found.Next == "" || err != nil {
			break
		}
		found, err = r.exportPage(ctx, s.Text, how, found.Next)
		if err == nil && whole && r.Part != "" { // the name of the file does not say so
			err = errors.New(r.Part)
		}
	}
	if err != nil {
		if r.Context().Err() == nil {
			h.log.Warn("delayqueue: an export was cut off", "queue", r.Queue, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	return nil
}

// endWith cancels an export when the Handler is closed, and wakes it if the client takes nothing. ended is called when
// the export has ended.
func (h *Handler) endWith(w http.ResponseWriter, cancel func()) (ended func()) {
	woken := make(chan struct{})
	stop := context.AfterFunc(h.done, func() {
		defer close(woken)
		cancel()
		limitWrite(w, 0)
	})
	return func() {
		if !stop() { // nobody may use w after the request
			<-woken
		}
	}
}

// fileOf is the name of a file about a queue.
func fileOf(queue string, whole bool) string {
	file := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' {
			return c
		}
		return '_'
	}, beginning(queue, 100))
	if !whole {
		file += "-incomplete"
	}
	return file
}

// exportPage reads a page if the reader still may, and rests as long as that took, because others need the server, too.
// Of shards that do not answer it takes note in r.Part.
func (r *request) exportPage(ctx context.Context, text string, how ops.Find, cursor string) (*ops.Found, error) {
	if _, err := r.may(Look, r.Queue); err != nil {
		return nil, err
	}
	begun := time.Now()
	one, cancel := context.WithTimeout(ctx, r.h.bounds.request)
	defer cancel()
	found, err := r.Monitor().Find(one, text, how, cursor)
	err = r.part(err)
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
