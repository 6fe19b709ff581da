package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// listed is how many bad rows a tally names, so that 500 tallies fit into the 1 MB of a group.
const listed = 5

// A tally is the result of a row, of some rows, or of all.
type tally struct {
	Import  string
	Handled int      `json:",omitempty"`
	Cents   int64    `json:",omitempty"`
	Bad     int      `json:",omitempty"`
	List    []badRow `json:",omitempty"` // the first of the bad ones

	Rows  int       `json:",omitempty"` // of the file; the first part of the report has it
	Began time.Time `json:",omitzero"`
}

type badRow struct {
	Number int
	Why    string
}

func (t *tally) note(number int, why error) {
	t.Bad, t.List = 1, []badRow{{number, why.Error()}}
}

func addAll(parts []tally) tally {
	total := tally{Import: parts[0].Import, Began: parts[0].Began}
	for _, t := range parts {
		total.Handled += t.Handled
		total.Cents += t.Cents
		total.Bad += t.Bad
		total.Rows += t.Rows
		total.List = append(total.List, t.List...)
	}
	slices.SortFunc(total.List, func(a, b badRow) int { return cmp.Compare(a.Number, b.Number) })
	total.List = total.List[:min(len(total.List), listed)]
	return total
}

// table is the report.
func (t *tally) table(took time.Duration) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "rows\thandled\tbad\tmissing\tsum\ttook\t")
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d.%02d\t%v\t\n", t.Rows, t.Handled, t.Bad, t.Rows-t.Handled-t.Bad,
		t.Cents/100, t.Cents%100, took.Round(100*time.Millisecond))
	_ = w.Flush()
	for _, bad := range t.List {
		fmt.Fprintf(&b, "row %d is bad: %s\n", bad.Number, bad.Why)
	}
	if more := t.Bad - len(t.List); more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return b.String()
}

// load reads a file. The name of its import is that of the file and the beginning of a sum of the content, so a file
// that was changed is another import.
func load(path string) (name string, rows []string, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	rows = strings.Split(strings.TrimSpace(string(raw)), "\n")[1:] // without the head line
	if len(rows) == 0 || len(rows) > maxRows {
		return "", nil, fmt.Errorf("%s has %d rows, and may have 1 to %d", path, len(rows), maxRows)
	}
	return fmt.Sprintf("%.100s-%.4x", filepath.Base(path), sha256.Sum256(raw)), rows, nil
}

var errUnreadable = errors.New("it must be an id and cents, as in A-1001,1250")

// handle does the work of a row, which stands for a call of another service, and returns its cents. The third field
// is for the sample: how often the work fails before it is done.
func (im *importer) handle(ctx context.Context, text string, failures int) (cents int64, err error) {
	fields, err := csv.NewReader(strings.NewReader(text)).Read()
	if err == nil && len(fields) > 1 {
		cents, err = strconv.ParseInt(fields[1], 10, 64)
	}
	if err != nil || len(fields) < 2 {
		return 0, fmt.Errorf("%.40q: %w", text, errUnreadable)
	}
	select {
	case <-time.After(im.work):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if len(fields) > 2 {
		if bad, _ := strconv.Atoi(fields[2]); failures < bad {
			return 0, fmt.Errorf("%.40q: the work failed %d times", text, failures+1)
		}
	}
	return cents, nil
}
