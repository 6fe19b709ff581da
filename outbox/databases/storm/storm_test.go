package main

import (
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestMain is also the main function of services, which are this binary again.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childFlag {
		end(serve(os.Args[2]))
	}
	flag.Parse()
	redis.SetLogger(quiet{})
	os.Exit(m.Run())
}

// TestStorm is the storm in small.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	v, err := run(t.Context(), small, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	printTable(t.Output(), v)
	for _, finding := range v.Findings {
		t.Error(finding)
	}
}
