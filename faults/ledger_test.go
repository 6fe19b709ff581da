package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBooks: what is added is read once, and a torn line is not.
func TestBooks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := &books{dir: dir}
	read := func(want int) {
		t.Helper()
		ok(t, b.catchUp())
		if n := len(b.all()); n != want || b.count(sent) != want {
			t.Fatalf("%d entries, %d of them sent, want %d", n, b.count(sent), want)
		}
	}
	read(0)
	l, err := openLedger(dir, "c1")
	ok(t, err)
	defer l.file.Close()
	l.write(entry{Kind: sent, Payload: "a b\n\"c"})
	read(1)
	read(1)
	l.write(entry{Kind: sent, Payload: "d"})
	_, err = l.file.WriteString(`{"k":"sent","p":"to`)
	ok(t, err)
	read(2)
	if e := b.all()[0]; e.Payload != "a b\n\"c" || e.who != "c1" || e.At == 0 {
		t.Errorf("read %+v", e)
	}
	ok(t, os.WriteFile(filepath.Join(dir, "c2.ledger"), []byte("rubbish\n"), 0o600))
	if b.catchUp() == nil {
		t.Error("rubbish was read")
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
