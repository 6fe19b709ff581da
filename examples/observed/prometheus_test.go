package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// prometheusServer is a real one, on a free port, that scrapes the service.
type prometheusServer struct {
	t    *testing.T
	addr string
}

// startPrometheus gives it prometheus.yml with another target and shorter intervals.
func startPrometheus(t *testing.T, target string) *prometheusServer {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("there is no prometheus in PATH; run `make test-all`, which installs it: %v", err)
	}
	raw, err := os.ReadFile("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs("../../metrics/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	conf := string(raw)
	for from, to := range map[string]string{"127.0.0.1:8080": target, "../../metrics/alerts.yml": rules,
		"interval: 10s": "interval: 1s",
		"timeout: 10s":  "timeout: 1s"} {
		if !strings.Contains(conf, from) {
			t.Fatalf("prometheus.yml has no %q", from)
		}
		conf = strings.ReplaceAll(conf, from, to)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	said := func() string {
		text, err := os.ReadFile(output.Name())
		return fmt.Sprint(string(text), err)
	}
	// a free port may be taken before it is used
	for begun := testkit.Worked(); testkit.Worked()-begun < testkit.Patience; {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := &prometheusServer{t: t, addr: listener.Addr().String()}
		listener.Close()
		process, err := redistest.StartProcess(path, []string{
			"--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=" + p.addr,
		}, dir, output)
		if err != nil {
			t.Fatal(err)
		}
		for !process.Ended() && testkit.Worked()-begun < testkit.Patience {
			if answer, err := client.Get("http://" + p.addr + "/-/ready"); err == nil {
				answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					t.Cleanup(process.Stop)
					return p
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
		process.Stop()
	}
	t.Fatalf("prometheus does not start; it said:\n%s", said())
	return nil
}

// get asks the HTTP API.
func (p *prometheusServer) get(path string, params url.Values, into any) {
	p.t.Helper()
	answer, err := client.Get("http://" + p.addr + "/api/v1/" + path + "?" + params.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	var body struct {
		Error string
		Data  json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || body.Error != "" {
		p.t.Fatalf("%s %v: %s, %v", path, params, body.Error, err)
	}
	if err := json.Unmarshal(body.Data, into); err != nil {
		p.t.Fatal(err)
	}
}

// query returns the values that an expression has now.
func (p *prometheusServer) query(expr string) (values []float64) {
	p.t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	p.get("query", url.Values{"query": {expr}}, &data)
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			p.t.Fatalf("%s: %v", expr, err)
		}
		values = append(values, v)
	}
	return values
}

// eventually waits until an expression has values, all of them from low to high.
func (p *prometheusServer) eventually(expr string, low, high float64) {
	p.t.Helper()
	for begun := testkit.Worked(); ; time.Sleep(100 * time.Millisecond) {
		values := p.query(expr)
		good := len(values) > 0
		for _, v := range values {
			good = good && v >= low && v <= high // not so if it is NaN
		}
		if good {
			return
		}
		if testkit.Worked()-begun > testkit.Patience {
			p.t.Errorf("%s\nis %v, want values from %v to %v", expr, values, low, high)
			return
		}
	}
}

// A rule is an alert as Prometheus sees it.
type rule struct {
	Name, Health, LastError, State string
	Alerts                         []alert
}

type alert struct{ Labels map[string]string }

func (p *prometheusServer) rules() (all []rule) {
	p.t.Helper()
	var data struct{ Groups []struct{ Rules []rule } }
	p.get("rules", nil, &data)
	for _, group := range data.Groups {
		all = append(all, group.Rules...)
	}
	return all
}
