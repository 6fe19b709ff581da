package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// again is this command line once more, to be typed into a shell, with a flag that says where to go on. Times that
// were given from now on stand in it as the instants that they meant. A password that was given in --redis is
// hidden in it.
func again(c *cobra.Command, flag, value string) string {
	words := strings.Fields(c.CommandPath())
	for _, arg := range c.Flags().Args() {
		words = append(words, shellQuote(arg))
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != flag {
			words = append(words, flagWords(f)...)
		}
	})
	return strings.Join(append(words, "--"+flag+" "+shellQuote(value)), " ")
}

// secretless is the address as it was given, if no part of it is a secret, else without them.
func (r *address) secretless() string {
	if r.User == nil && !strings.Contains(r.RawQuery, "password") {
		given := *r.URL
		given.Host = strings.Join(r.hosts, ",")
		return given.String()
	}
	return r.shown()
}

// connectionFlags adds those that say where the queues are.
func connectionFlags(words *[]string) func(*pflag.Flag) {
	return func(f *pflag.Flag) {
		if slices.Contains([]string{"redis", "prefix", "password-file", "cacert", "cert", "cert-key"}, f.Name) {
			*words = append(*words, flagWords(f)...)
		}
	}
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
	case *ageFlag:
		add("to", v.Format(time.RFC3339Nano))
	case pflag.SliceValue:
		for _, one := range v.GetSlice() {
			add(f.Name, one)
		}
	default:
		switch f.Value.Type() {
		case "bool":
			words = append(words, "--"+f.Name+"="+f.Value.String())
			if f.Value.String() == "true" {
				words = []string{"--" + f.Name}
			}
		case "stringToString":
			add(f.Name, strings.TrimSuffix(strings.TrimPrefix(f.Value.String(), "["), "]"))
		default:
			add(f.Name, f.Value.String())
		}
	}
	return words
}
