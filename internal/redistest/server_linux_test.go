package redistest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// A test binary that is killed cannot clean up: Linux ends its servers.
func TestServerDiesWithBinary(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(testCtx(t), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	addr := strings.TrimSpace(line)
	if err != nil || strings.HasPrefix(addr, "error") {
		t.Fatalf("child: %q, %v", line, err)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("the child's server does not run: %v", err)
	}
	defer conn.Close()
	cmd.Process.Kill()
	_ = cmd.Wait()
	if !until(time.Minute, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}) {
		t.Fatal("the server has outlived its binary")
	}
}
