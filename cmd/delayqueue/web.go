package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue/web"
	"github.com/spf13/cobra"
)

func (a *app) webCommand() *cobra.Command {
	var listen string
	var readOnly bool
	var hosts []string
	c := &cobra.Command{
		Use:   "web [QUEUE...]",
		Short: "Serve a page about queues",
		Long: `web serves a page about the named queues, or all queues of the prefix, until
Ctrl-C. At a loopback address, all users of this machine may look and act, in
the name of --operator. At any other address it needs --read-only: everybody who
can reach the page may look, and nobody may change anything. To let some people
act, mount the package web in a service.

The page answers only to addresses, localhost, the name of this machine and the
names of --host. Otherwise another site could lead its own name to this address
and read the page through a visitor's browser.`,
		Example: "  delayqueue web --listen 127.0.0.1:9000",
		RunE: func(c *cobra.Command, names []string) error {
			if err := validNames(names); err != nil {
				return err
			}
			if err := a.connect(c.Context()); err != nil {
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return fail(exitFailed, "--listen: %v", err)
			}
			if at, ok := l.Addr().(*net.TCPAddr); !readOnly && (!ok || !at.IP.IsLoopback()) {
				_ = l.Close() // nothing was accepted
				return fail(exitUsage, "--listen %s: other machines can reach that: it needs --read-only", listen)
			}
			page := web.New(a.cli, web.Config{
				Prefix: a.prefix, Queues: names, Hosts: withHostname(hosts), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
				HungAfter: time.Duration(a.hungAfter), LaneAfter: time.Duration(a.laneAfter),
				Authorize: func(_ *http.Request, do web.Action, _ string) (string, error) {
					if readOnly && do != web.Look {
						return "", errors.New("this page is read-only")
					}
					return a.operator, nil
				},
			})
			fmt.Fprintf(os.Stderr, "listening on http://%s/; Ctrl-C ends it\n", l.Addr())
			return page.Serve(c.Context(), l)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address for browsers, host:port")
	c.Flags().StringSliceVar(&hosts, "host", nil, "other host names of the page")
	c.Flags().BoolVar(&readOnly, "read-only", false, "nobody may change anything")
	a.verdictFlags(c)
	return c
}

// withHostname adds the name of this machine, if it has one.
func withHostname(hosts []string) []string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "localhost" // without any name, the page would answer to all
	}
	return append(hosts, name)
}
