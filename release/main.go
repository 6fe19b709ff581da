package main

import (
	"flag"
	"fmt"
	"os"
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
	dry := flags.Bool("n", false, "tag: show what it would do")
	flags.Usage = func() {
		fmt.Fprintln(os.Stderr, "go run . [-tree DIR] check | api | tidy | [-n] tag VERSION")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := readTree(*dir)
	if err != nil {
		return err
	}
	switch args = flags.Args(); {
	case len(args) == 1 && args[0] == "check":
		return t.check()
	case len(args) == 1 && args[0] == "api":
		return t.writeAPI()
	case len(args) == 1 && args[0] == "tidy":
		_, err := t.tidy(true)
		return err
	case len(args) == 2 && args[0] == "tag":
		if err := t.check(); err != nil {
			return err
		}
		return t.tag(args[1], *dry, os.Stdout)
	}
	flags.Usage()
	os.Exit(2)
	return nil
}
