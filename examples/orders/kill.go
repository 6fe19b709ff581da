package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A tally is what clients were told.
type tally struct {
	mu     sync.Mutex
	placed []string // orders that were confirmed
	paid   map[string]bool
	failed int // requests without an answer
}

const (
	clients     = 8
	childUnpaid = 2 * time.Second
)

// torture kills the service again and again under load, and counts what became of the orders.
func torture(ctx context.Context, kills int, out, errs io.Writer) error {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		return err
	}
	file := filepath.Join(dir, "orders.db")
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		return err
	}
	defer said.Close()
	start := func() (*exec.Cmd, error) {
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		child := exec.Command(program, "-addr", addr, "-file", file, "-unpaid", childUnpaid.String())
		child.Stderr = said
		return child, child.Start()
	}
	child, err := start()
	if err != nil {
		return err
	}
	load, stop := context.WithCancel(ctx)
	defer stop()
	t := &tally{paid: map[string]bool{}}
	var all sync.WaitGroup
	for range clients {
		all.Go(func() { t.client(load, "http://"+addr) })
	}
	for i := range kills {
		select {
		case <-ctx.Done():
		case <-time.After(500*time.Millisecond + rand.N(2*time.Second)):
		}
		_ = child.Process.Kill()
		_ = child.Wait() // it was killed
		fmt.Fprintf(out, "killed %d of %d: %s\n", i+1, kills, t)
		if child, err = start(); err != nil {
			return err
		}
	}
	time.Sleep(time.Second)
	stop()
	all.Wait()
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	if err := t.count(ctx, file, out); err != nil {
		text, _ := os.ReadFile(said.Name()) // it helps to understand err, no more
		fmt.Fprintf(errs, "the service said:\n%s\n", text)
		return err
	}
	return nil
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d orders placed, %d paid, %d requests without an answer", len(t.placed), len(t.paid), t.failed)
}

// client places orders, and pays one of three, soon or late.
func (t *tally) client(ctx context.Context, url string) {
	for ctx.Err() == nil {
		id, ok := t.post(url+"/orders", http.StatusCreated)
		if !ok {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		t.mu.Lock()
		t.placed = append(t.placed, id)
		t.mu.Unlock()
		if rand.N(3) > 0 {
			continue
		}
		if _, ok := t.post(url+"/orders/"+id+"/pay", http.StatusOK); ok {
			t.mu.Lock()
			t.paid[id] = true
			t.mu.Unlock()
		}
	}
}

func (t *tally) post(url string, want int) (text string, ok bool) {
	answer, err := http.Post(url, "text/plain", strings.NewReader("tea"))
	if err == nil {
		var body []byte
		body, err = io.ReadAll(answer.Body)
		err = errors.Join(err, answer.Body.Close())
		if text, ok = strings.TrimSpace(string(body)), err == nil && answer.StatusCode == want; ok {
			return text, true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	return "", false
}

// count waits until no order is unpaid, and compares the database with what clients were told.
func (t *tally) count(ctx context.Context, file string, out io.Writer) error {
	db, err := openDatabase(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	var counts map[string]int
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if counts, err = db.counts(ctx); err != nil || counts[unpaid] == 0 {
			break
		}
	}
	if err != nil {
		return err
	}
	missing, unkept := 0, 0
	for _, id := range t.placed {
		var state string
		if db.QueryRowContext(ctx, db.sql("SELECT state FROM orders WHERE id = ?"), id).Scan(&state) != nil {
			missing++
		} else if t.paid[id] && state != paid {
			unkept++
		}
	}
	fmt.Fprintf(out, "\n%s\nof all orders in the database %d are paid, %d closed, %d still unpaid\n"+
		"missing: %d; paid, and closed all the same: %d\n", t, counts[paid], counts[closed], counts[unpaid], missing, unkept)
	if len(t.placed) == 0 || counts[unpaid]+missing+unkept > 0 {
		return errors.New("orders were lost, or none was placed")
	}
	return nil
}
