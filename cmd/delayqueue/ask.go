package main

import (
	"fmt"
	"os"
	"strings"
)

// ask wants a yes before something is destroyed.
func (a *app) ask(format string, args ...any) error {
	question := printable(fmt.Sprintf(format, args...))
	if a.yes {
		return nil
	}
	if !onTerminal(os.Stdin) {
		return fail(exitUnconfirmed, "%s There is nobody to ask: add --yes.", question)
	}
	fmt.Fprintf(os.Stderr, "%s [y/N] ", question)
	type answer struct {
		text string
		err  error
	}
	given := make(chan answer, 1)
	go func() {
		text, err := a.in.ReadString('\n')
		given <- answer{text, err}
	}()
	select {
	case <-a.command.Context().Done():
		fmt.Fprintln(os.Stderr)
		return a.command.Context().Err()
	case got := <-given:
		if word := strings.ToLower(strings.TrimSpace(got.text)); got.err == nil && (word == "y" || word == "yes") {
			return nil
		}
		return fail(exitUnconfirmed, "nothing was done")
	}
}
