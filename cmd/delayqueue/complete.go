package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// completeQueue completes the first argument with the names in Redis, and the second with others. A name that is
// more than a word is left out: a shell would run, show or split what is in it.
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
		_, _ = a.discover(ctx, hintPages, func(name string) { names = append(names, name) }) // what was found is offered
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
