// Storm proves what the outbox promises, under faults. Four services write orders in transactions, of which a third
// roll back, relay the messages of the orders, and handle them. Meanwhile services are killed and frozen, PostgreSQL is
// restarted, killed and failed over, and Redis is killed, failed over without confirmation, and restored from an old
// RDB. The clock of PostgreSQL is 30 s ahead of that of Redis. One transaction stays open while many others commit.
//
//	go run .          100,000 orders; it takes some ten minutes
//	go run . -fast    3,000 orders, in a minute
//
// There are four concepts:
//
//   - A service (service.go) is this binary again.
//   - A ledger (ledger.go) is a file that a service appends to: what it is about to write, what it was told, and each
//     message that it has handled. It is outside of Redis and of the database.
//   - A world (world.go, strikes.go) is all servers and services, and what strikes them.
//   - The judge (judge.go) compares the ledgers with the orders that are in the database at the end: each of them has a
//     message that was handled, and no other order has one.
//
// It needs the servers of .ci/install-redis and .ci/install-databases, and starts them on free ports.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	services  = 4
	childFlag = "-service"
)

// A plan is the size of a run.
type plan struct {
	orders  int
	over    time.Duration // in which they are written, if nothing strikes
	rounds  int           // of all strikes
	age     time.Duration // of the RDB that Redis comes back with
	unheard time.Duration // how long a replica has not heard of Redis when it is promoted
	seed    uint64
}

var (
	full  = plan{orders: 100_000, over: 8 * time.Minute, rounds: 3, age: 2 * time.Minute, unheard: 3 * time.Second}
	small = plan{orders: 3_000, over: 30 * time.Second, rounds: 1, age: 5 * time.Second, unheard: time.Second}
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == childFlag {
		end(serve(os.Args[2]))
	}
	orders := flag.Int("orders", full.orders, "how many orders are tried")
	seed := flag.Uint64("seed", 1, "of what is random: which orders roll back how, and the order of the strikes")
	fast := flag.Bool("fast", false, fmt.Sprintf("%d orders, and each fault once or twice", small.orders))
	asJSON := flag.Bool("json", false, "print what became of the orders as JSON")
	flag.Parse()
	p := full
	if p.orders = *orders; *fast {
		p = small
	}
	p.seed = *seed
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	redis.SetLogger(quiet{}) // the services' logs have it
	v, err := run(ctx, p, os.Stderr)
	if err != nil {
		end(err)
	}
	if *asJSON {
		err = json.NewEncoder(os.Stdout).Encode(v)
	} else {
		printTable(os.Stdout, v)
	}
	if err == nil && len(v.Findings) > 0 {
		err = fmt.Errorf("%d things are wrong", len(v.Findings))
	}
	end(err)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run is the course of a storm.
func run(ctx context.Context, p plan, progress io.Writer) (*verdict, error) {
	begun := time.Now()
	w := &world{plan: p, random: rand.New(rand.NewPCG(p.seed, 0))}
	defer w.close()
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	steps, want := w.steps()
	err := w.storm(ctx, steps, progress)
	if err == nil {
		err = w.settle(ctx, progress)
	}
	if err != nil {
		return nil, errors.Join(err, errors.New(w.logs()))
	}
	e, err := w.evidence(ctx)
	if err != nil {
		return nil, err
	}
	e.want = want
	v := judge(e)
	v.Seconds = time.Since(begun).Seconds()
	if len(v.Findings) > 0 {
		fmt.Fprintln(progress, w.logs())
	}
	return v, nil
}

// findingsShown is how many of the things that are wrong are printed.
const findingsShown = 20

// printTable prints what became of the orders, in aligned lines.
func printTable(out io.Writer, v *verdict) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range []struct {
		what string
		n    any
	}{
		{"orders tried", v.Orders}, {"committed", v.Committed}, {"rolled back", v.RolledBack},
		{"of these because of a unique key", v.Violated}, {"messages sent", v.Sent},
		{"messages sent again, which Redis had forgotten", v.Healed}, {"orders handled", v.Handled},
		{"handlers run", v.Runs}, {"orders of which two messages were handled", v.Twice},
	} {
		fmt.Fprintf(t, "%s\t%v\t\n", line.what, line.n)
	}
	fmt.Fprintf(t, "longest time without a handled message\t%v\t\n", v.Gap.Round(time.Millisecond))
	for _, kind := range kinds {
		fmt.Fprintf(t, "%s\t%d\t\n", kind, v.Strikes[kind])
	}
	fmt.Fprintf(t, "duration\t%v\t\n", time.Duration(v.Seconds*float64(time.Second)).Round(time.Second))
	_ = t.Flush() // to a terminal
	for i, finding := range v.Findings {
		if i == findingsShown {
			fmt.Fprintf(out, "and %d more\n", len(v.Findings)-i)
			break
		}
		fmt.Fprintf(out, "WRONG: %s\n", finding)
	}
}
