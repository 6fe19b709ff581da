package main

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
)

// neededName is an argument that must be given, as the usage of a command writes it.
var neededName = regexp.MustCompile(`^([A-Z]+)(\.\.\.)?$`)

// argsError says which argument is missing or too many.
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

// completeQueue completes the first argument with the names of queues, and the second with others. Names that are not one plain
// word are left out, because a shell would run, show or split them.
func (a *app) completeQueue(second ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		const only = cobra.ShellCompDirectiveNoFileComp
		if len(args) == 1 {
			return second, only
		}
		if len(args) > 0 || a.checkIdentity() != nil || a.connect(c.Context()) != nil {
			return nil, only
		}
		ctx, cancel := context.WithTimeout(c.Context(), hintTime)
		defer cancel()
		var names []string
		_, _ = a.discover(ctx, hintPages, func(name string) { names = append(names, name) }) // names that were found before an error are offered
		return slices.DeleteFunc(names, func(name string) bool {
			return !plainWord.MatchString(name) || strings.HasPrefix(name, "_activeHelp_")
		}), only
	}
}

// completeQueues completes any number of queues.
func (a *app) completeQueues(c *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	names, only := a.completeQueue()(c, nil, part)
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), only
}

// nearest is the candidate that is a typing error away from text, "" if none is.
func nearest(text string, candidates []string) string {
	if len(candidates) == 0 {
		return ""
	}
	distance := func(c string) int { return levenshtein.ComputeDistance(text, c) }
	best := slices.MinFunc(candidates, func(a, b string) int {
		return cmp.Or(cmp.Compare(distance(a), distance(b)), cmp.Compare(a, b))
	})
	if distance(best) > max(2, len(text)/4) {
		return ""
	}
	return best
}

// didYouMean is the end of a sentence.
func didYouMean(name, tail string) string {
	if name == "" {
		return ""
	}
	return `: did you mean "` + name + tail + `"?`
}
