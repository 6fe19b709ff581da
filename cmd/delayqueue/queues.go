package main

import (
	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

func (a *app) queuesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "queues",
		Short: "List the queues of the prefix",
		Long:  "queues lists the queues of the prefix as they are found. It looks at every key of the server, a page at a time.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.connect(c.Context(), false); err != nil {
				return err
			}
			for name, err := range delayqueue.Queues(c.Context(), a.cli, delayqueue.UseCustomPrefix(a.prefix)) {
				if err != nil {
					return err
				}
				if a.json {
					if err := printJSON(map[string]string{"queue": name}); err != nil {
						return err
					}
				} else {
					say("%s", name)
				}
			}
			return nil
		},
	}
}
