package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// command does what the arguments say, in the tree above this module.
func command(args []string) error {
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	dir := flags.String("tree", "..", "the top of the tree")
	flags.Usage = func() {
		fmt.Fprintln(os.Stderr, "go run . [-tree DIR] check | api | tidy | tag [-n] VERSION | proxy DIR")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := readTree(*dir)
	if err != nil {
		return err
	}
	switch args := flags.Args(); strings.Join(args[:min(1, len(args))], "") {
	case "check":
		return t.check()
	case "api":
		return t.writeAPI()
	}
	flags.Usage()
	os.Exit(2)
	return nil
}
