package redistest

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main starts the server that all tests of a package share, runs them, 16 at a time because they wait most of the time, and returns
// the exit code.
func Main(m *testing.M, shared **Server) int {
	server, err := Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Close()
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	*shared = server
	return m.Run()
}
