package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// neededName is an argument that must be given, as the line that shows how a command is used names it.
var neededName = regexp.MustCompile(`^([A-Z]+)(\.\.\.)?$`)

// argsError says what is missing, or too many, where the arguments are not as many as a command takes.
func argsError(c *cobra.Command, args []string, err error) error {
	if err == nil {
		return nil
	}
	var needed []string
	for _, word := range strings.Fields(c.Use)[1:] {
		if name := neededName.FindStringSubmatch(word); name != nil {
			needed = append(needed, name[1])
		}
	}
	use := strings.Replace(c.Use, c.Name(), c.CommandPath(), 1)
	if len(args) >= len(needed) {
		return fail(exitUsage, "%q is one argument too many: %s", args[len(args)-1], use)
	}
	missing := strings.Join(needed[len(args):], " and ")
	if strings.HasSuffix(missing, "STATE") {
		missing += " (" + strings.Join(stateNames, ", ") + ")"
	}
	return fail(exitUsage, "%s missing: %s", missing, use)
}
