package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/ops"
)

// booksJSON is what doctor --json says of the books.
type booksJSON struct {
	Since       time.Time        `json:"since"`
	Entered     map[string]int64 `json:"entered"` // by cause
	Left        map[string]int64 `json:"left"`    // by cause
	Here        int64            `json:"here"`
	Unaccounted int64            `json:"unaccounted"` // less than 0: too many
}

// A cause is why messages entered or left.
type cause struct {
	words string
	n     int64
}

func enteredBy(b ops.Balance) []cause {
	return []cause{{"sent", b.Sent}, {"followed others", b.Followed}, {"by schedules", b.Scheduled},
		{"imported", b.Imported}, {"found", b.Found}}
}

func leftBy(b ops.Balance) []cause {
	return []cause{{"acked", b.Acked}, {"kept until their time was over", b.Over}, {"superseded", b.Superseded},
		{"intercepted", b.Intercepted},
		{"canceled", b.Canceled}, {"deleted", b.Deleted}, {"too old in garbage", b.Aged}, {"too many", b.Trimmed},
		{"written off", b.WrittenOff}}
}

func booksOf(b ops.Balance) *booksJSON {
	by := func(causes []cause) map[string]int64 {
		all := map[string]int64{}
		for _, c := range causes {
			all[c.words] = c.n
		}
		return all
	}
	return &booksJSON{b.Since.UTC(), by(enteredBy(b)), by(leftBy(b)), b.Here, b.Unaccounted}
}

// describeBooks prints the balance, with the causes that there are.
func describeBooks(b ops.Balance) {
	verdict := paint(good, "they balance")
	if b.Unaccounted != 0 {
		verdict = paint(bad, "they do not balance")
	}
	say("books since %s: %s", at(b.Since), verdict)
	columns := max(len(fmt.Sprint(b.Entered)), len(fmt.Sprint(b.Left)), len(fmt.Sprint(b.Here)))
	line := func(name string, n int64, causes []cause) {
		var some []string
		for _, c := range causes {
			if c.n != 0 {
				some = append(some, fmt.Sprintf("%d %s", c.n, c.words))
			}
		}
		say("%s", strings.TrimRight(fmt.Sprintf("  %-11s %*d  %s", name, columns, n, strings.Join(some, ", ")), " "))
	}
	line("entered", b.Entered, enteredBy(b))
	line("left", b.Left, leftBy(b))
	line("here", b.Here, nil)
	if b.Unaccounted != 0 {
		line("unaccounted", b.Unaccounted, nil)
	}
}

// unbalanced is the finding that the books do not balance.
func unbalanced(b ops.Balance) check.Finding {
	text := differenceOf(b.Unaccounted)
	return check.Finding{Kind: check.Unbalanced, Structure: "books", Item: text, Text: "books: " + text + "."}
}

func differenceOf(missing int64) string {
	if missing < 0 {
		return plural(int(-missing), "message") + " appeared without a word"
	}
	return plural(int(missing), "message") + " vanished without a word"
}

// lost is the finding that messages were lost, which nobody has accepted.
func lost(n ops.Counts) check.Finding {
	text := fmt.Sprintf("at most %s lost, since %s", plural(int(n.LossMessages), "message"), at(n.LossSince))
	return check.Finding{Kind: loss, Structure: "books", Item: text, Text: "books: " + text + "."}
}
