package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/health"
	"golang.org/x/term"
)

// Sequences that every terminal knows.
const (
	altScreen   = "\x1b[?1049h\x1b[?25l" // without a cursor
	mainScreen  = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearToLine = "\x1b[K"
	clearToEnd  = "\x1b[J"
)

// orders are those in which a person may see the queues. Queues that are equal in one stand in the order of the first.
var orders = []struct {
	name string
	less func(a, b *health.Look) int // nil: the worst first
}{
	{"worst", nil},
	{"name", func(a, b *health.Look) int { return cmp.Compare(a.Name, b.Name) }},
	{"waits", func(a, b *health.Look) int { return cmp.Compare(b.Waits(), a.Waits()) }},
	{"out/s", func(a, b *health.Look) int { return cmp.Compare(outOf(b), outOf(a)) }},
	{"fails", func(a, b *health.Look) int {
		return cmp.Compare(health.Failing(b.Recent()), health.Failing(a.Recent()))
	}},
	{"oldest", func(a, b *health.Look) int { return cmp.Compare(b.Counts.Behind, a.Counts.Behind) }},
}

func outOf(l *health.Look) float64 {
	_, out := l.Rates()
	return out.PerSecond
}

// A view is what a person looks at.
type view struct {
	first, shown int  // rows
	order        int  // of orders
	keyed        bool // keys can change it
}

// watch redraws the board in place, as large as the window allows. An outage does not end it. The last board stays on
// the screen.
func (b *board) watch(ctx context.Context, every time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	last := ""
	fmt.Print(altScreen)
	defer func() { fmt.Print(mainScreen + last) }()
	pressed, restore := b.keys(cancel)
	defer restore()
	b.view.keyed = pressed != nil
	tick := time.NewTicker(every)
	defer tick.Stop()
	for look := false; ; {
		if look {
			b.read(ctx)
		}
		if ctx.Err() != nil {
			return nil // it was told to end
		}
		frame, foot := b.frame()
		last = frame
		frame = strings.ReplaceAll(frame+faint.Sprint(foot), "\n", clearToLine+"\r\n") // \r for a raw terminal
		if _, err := fmt.Print(home + frame + clearToEnd); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			look = true
		case key := <-pressed:
			b.view.press(key)
			look = false
		}
	}
}

// keyPresses finds what one key has sent.
var keyPresses = regexp.MustCompile(`\x1b\[[0-9]*[A-Z~]|\x1bO[A-Z]|.`)

// keys hands out the keys that are pressed, if the input is a terminal, and restores its mode. q and Ctrl-C end the
// board, also while it reads. Of the other keys that are pressed while it reads, those that are too many do nothing.
func (b *board) keys(end context.CancelFunc) (pressed <-chan string, restore func()) {
	fd := int(os.Stdin.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, func() {}
	}
	keys := make(chan string, 64)
	// It ends with the program, because a read of a terminal cannot be ended.
	go handOut(b.in, keys, end)
	return keys, func() { _ = term.Restore(fd, before) } // a terminal that is gone needs no mode
}

// handOut reads keys until it cannot. It never waits for who takes them, so that q and Ctrl-C are always heard.
func handOut(in io.Reader, keys chan<- string, end func()) {
	typed := make([]byte, 256)
	for {
		n, err := in.Read(typed)
		for _, key := range keyPresses.FindAllString(string(typed[:n]), -1) {
			if key == "q" || key == "\x03" {
				end()
			}
			select {
			case keys <- key:
			default:
			}
		}
		if err != nil {
			return
		}
	}
}

// press changes the view. A row that is not there is mended by frame.
func (v *view) press(key string) {
	switch key {
	case "j", "\x1b[B", "\x1bOB":
		v.first++
	case "k", "\x1b[A", "\x1bOA":
		v.first--
	case " ", "\x1b[6~":
		v.first += v.shown
	case "\x1b[5~":
		v.first -= v.shown
	case "\x1b[H", "\x1b[1~", "\x1bOH":
		v.first = 0
	case "\x1b[F", "\x1b[4~", "\x1bOF":
		v.first = 1 << 30
	case "s":
		v.order, v.first = (v.order+1)%len(orders), 0
	}
}

// frame is the part of the board that the window has room for, with the first error on a line of its own, and the line
// at the bottom.
func (b *board) frame() (frame, foot string) {
	v := &b.view
	columns, room := window()
	all := health.WorstFirst(b.all)
	if less := orders[v.order].less; less != nil {
		slices.SortStableFunc(all, less)
	}
	head, rows := b.topTable(all).lines(columns)
	room -= len(head) + 1
	wrong := b.firstError()
	if wrong != nil {
		room--
	}
	room = max(room, 2) // also of a terminal that does not know its size
	short := func(text string) string {
		if columns > 0 {
			text = cut(text, columns)
		}
		return text
	}
	v.first = max(min(v.first, len(rows)-fitting(slices.Backward(rows), room)), 0)
	v.shown = fitting(slices.All(rows[v.first:]), room)
	shown := append(head, slices.Concat(rows[v.first:v.first+v.shown]...)...)
	if wrong != nil {
		_, text := b.explain(wrong)
		shown = append(shown, bad.Sprint(short(oneLine(text))))
	}
	ends := "Ctrl-C ends"
	if v.keyed {
		ends = "s sorts, arrows scroll, q quits"
	}
	foot = fmt.Sprintf("%s, rows %d to %d of %d, by %s; %s", time.Now().Format("15:04:05"), v.first+1,
		v.first+v.shown, len(rows), orders[v.order].name, ends)
	return strings.Join(shown, "\n") + "\n", short(foot)
}

// fitting is how many rows have room in so many lines: at least one.
func fitting(rows iter.Seq2[int, []string], room int) (n int) {
	for _, lines := range rows {
		if room -= len(lines); room < 0 && n > 0 {
			break
		}
		n++
	}
	return n
}
