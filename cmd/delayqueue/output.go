package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/go-delayqueue/delayqueue"
)

var (
	good  = text.Colors{text.FgGreen}
	warn  = text.Colors{text.FgYellow}
	bad   = text.Colors{text.FgRed}
	faint = text.Colors{text.Faint}
)

// oneLine keeps tables straight.
var oneLine = strings.NewReplacer("\n", " ", "\t", " ")

// paint colours what may be anybody's text.
func paint(c text.Colors, s string) painted {
	if s == "" {
		return ""
	}
	return painted(c.Sprint(oneLine.Replace(printable(s))))
}

// painted is safe to print as it is.
type painted string

// printable keeps what others wrote from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}

// printJSON prints one object on a line of its own.
func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// width of the terminal, 0 for no terminal.
func width() int {
	w, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return w
}

// grid is a table without lines.
func grid(header ...any) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	style.Color.Header = faint
	t.SetStyle(style)
	if len(header) > 0 {
		t.AppendHeader(header)
	}
	t.SuppressTrailingSpaces()
	return t
}

// right aligns columns of numbers, counted from 1.
func right(t table.Writer, columns ...int) {
	var configs []table.ColumnConfig
	for _, n := range columns {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

func addRow(t table.Writer, cells ...any) {
	row := make(table.Row, len(cells))
	for i, cell := range cells {
		switch cell := cell.(type) {
		case painted:
			row[i] = string(cell)
		case int64:
			row[i] = humanize.Comma(cell)
		default:
			row[i] = oneLine.Replace(printable(fmt.Sprint(cell)))
		}
	}
	t.AppendRow(row)
}

// number is red, yellow or green when it is not 0.
func number(n int64, c text.Colors) painted {
	if n == 0 {
		return "0"
	}
	return paint(c, humanize.Comma(n))
}

// brief rounds a duration to what a person reads.
func brief(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs >= 48*time.Hour:
		days := d / (24 * time.Hour)
		return fmt.Sprintf("%dd%dh", days, (d-days*24*time.Hour).Abs()/time.Hour)
	case abs >= time.Minute:
		return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
	case abs >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// at is an instant and how far off it is.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	far := time.Until(t)
	if far < 0 {
		return fmt.Sprintf("%s (%s ago)", clock(t), brief(-far))
	}
	return fmt.Sprintf("%s (in %s)", clock(t), brief(far))
}

func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }

// plural is a count with its noun.
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return humanize.Comma(int64(n)) + " " + noun
}

// progress shows how bulk work goes on, if somebody looks.
func (a *app) progress(what string, total int64) *progressbar.ProgressBar {
	if total == 0 {
		total = -1 // not known
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetVisibility(onTerminal(os.Stderr) && !a.json),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(total > 0),
		progressbar.OptionFullWidth(),
		progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

// messageJSON is a message as --json prints it.
type messageJSON struct {
	ID         string            `json:"id"`
	Key        string            `json:"key,omitempty"`
	State      string            `json:"state"`
	Due        time.Time         `json:"due"`
	At         *time.Time        `json:"at,omitempty"`
	Delivery   int               `json:"delivery"`
	Failures   int               `json:"failures"`
	Losses     int               `json:"losses"`
	MaxRetries int               `json:"max_retries"`
	Payload    *string           `json:"payload,omitempty"`
	Base64     []byte            `json:"payload_base64,omitempty"` // of a payload that is no text
	Headers    map[string]string `json:"headers,omitempty"`
	LastError  string            `json:"last_error,omitempty"`
	EndedAt    *time.Time        `json:"ended_at,omitempty"`
	Consumer   string            `json:"consumer,omitempty"`
	Unreadable string            `json:"unreadable,omitempty"`
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	utc := t.UTC()
	return &utc
}

func jsonOf(m *delayqueue.MessageStatus) messageJSON {
	out := messageJSON{
		ID: m.ID, Key: m.Key, State: m.State.String(), Due: m.Due.UTC(), At: instant(m.At), Delivery: m.Delivery, Failures: m.Failures,
		Losses: m.Losses, MaxRetries: m.MaxRetries, Headers: m.Headers, LastError: m.LastError, EndedAt: instant(m.EndedAt), Consumer: m.Consumer,
	}
	if m.Broken != nil {
		out.Unreadable = m.Broken.Error()
	}
	if utf8.ValidString(m.Payload) {
		out.Payload = &m.Payload
	} else {
		out.Base64 = []byte(m.Payload)
	}
	return out
}

// say prints a line; what others wrote is in args, which are made printable unless they are painted.
func say(format string, args ...any) {
	for i, arg := range args {
		if s, ok := arg.(string); ok {
			args[i] = printable(s)
		}
	}
	fmt.Printf(format+"\n", args...)
}
