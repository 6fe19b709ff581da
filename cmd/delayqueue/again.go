package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// again is this command line once more, for a shell, with flags (names and values) that say where to go on. A flag
// with the value "" is left out. Durations from now are written as the instants that they meant. A password in
// --redis is hidden.
func again(c *cobra.Command, flags ...string) string {
	var args, words []string
	last := false // an argument that begins with - would read as a flag
	for _, arg := range c.Flags().Args() {
		last = last || strings.HasPrefix(arg, "-")
		args = append(args, shellQuote(arg))
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(flags, f.Name) {
			words = append(words, flagWords(f)...)
		}
	})
	for i := 0; i+1 < len(flags); i += 2 {
		if flags[i+1] != "" {
			words = append(words, "--"+flags[i]+" "+shellQuote(flags[i+1]))
		}
	}
	if last {
		words = slices.Concat(words, []string{"--"}, args)
	} else {
		words = slices.Concat(args, words)
	}
	return c.CommandPath() + " " + strings.Join(words, " ")
}

// secretless is the address without secrets; as it was given if it has none.
func (r *address) secretless() string {
	if r.User == nil && !strings.Contains(r.RawQuery, "password") {
		given := *r.URL
		given.Host = strings.Join(r.hosts, ",")
		return given.String()
	}
	return r.shown()
}

func flagWords(f *pflag.Flag) (words []string) {
	if f.Name == "redis" {
		if r, err := parseAddress(f.Value.String(), fromFlag); err == nil {
			return []string{"--redis " + shellQuote(r.secretless())}
		}
		return nil
	}
	add := func(name, value string) { words = append(words, "--"+name+" "+shellQuote(value)) }
	switch v := f.Value.(type) {
	case *whenFlag:
		add(f.Name, v.Format(time.RFC3339Nano))
	case pflag.SliceValue:
		for _, one := range v.GetSlice() {
			add(f.Name, one)
		}
	case *headersFlag:
		for _, pair := range v.pairs() {
			add(f.Name, pair)
		}
	default:
		switch text := f.Value.String(); {
		case f.Value.Type() != "bool":
			add(f.Name, text)
		case text == "true":
			words = []string{"--" + f.Name}
		default:
			words = []string{"--" + f.Name + "=" + text}
		}
	}
	return words
}
