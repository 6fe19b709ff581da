package main

import (
	"github.com/spf13/cobra"
)

func (a *app) queuesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "queues",
		Short: "List the queues of the prefix",
		Long:  "queues lists the queues of the prefix as they are found. It looks at every key of the server, a page at a time.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.connect(c.Context()); err != nil {
				return err
			}
			var failed error
			_, err := a.discover(c.Context(), 0, func(name string) {
				if failed != nil {
					return
				}
				if a.json {
					failed = printJSON(map[string]string{"queue": name})
				} else {
					say("%s", name)
				}
			})
			if failed == nil {
				failed = err
			}
			return failed
		},
	}
}
