// Package metrics is not there: promqueue and otelqueue are. This tests what is written about them.
package metrics

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/metrics/internal/observe"
	"github.com/go-delayqueue/delayqueue/metrics/otelqueue"
	"github.com/go-delayqueue/delayqueue/metrics/promqueue"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// promNames are the metrics that a Collector has.
func promNames(t *testing.T) map[string]bool {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		promqueue.NewCollector(promqueue.Config{}).Describe(descs)
	}()
	names := map[string]bool{}
	for d := range descs {
		at := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())
		if at == nil {
			t.Fatalf("no name in %s", d)
		}
		names[at[1]] = true
	}
	return names
}

// otelUnits are the units of the instruments that Metrics have, by their names.
func otelUnits(t *testing.T) map[string]string {
	t.Helper()
	units := map[string]string{}
	note := func(i metric.Instrument) (metric.Stream, bool) { units[i.Name] = i.Unit; return metric.Stream{}, false }
	provider := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()), metric.WithView(note))
	if _, err := otelqueue.NewMetrics(otelqueue.Config{MeterProvider: provider}); err != nil {
		t.Fatal(err)
	}
	return units
}

var (
	promName  = regexp.MustCompile(`delayqueue_\w+`)
	alertName = regexp.MustCompile(`DelayQueue[A-Z]\w+`)
	suffix    = regexp.MustCompile(`_(bucket|sum|count)$`) // of the series of a histogram
)

// alerts are the rules' expressions by their names.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	exprs := map[string]string{}
	for _, rule := range strings.Split(read(t, "alerts.yml"), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		expr, _, found := strings.Cut(rest, "labels:")
		if !found {
			t.Fatalf("alert %s has no labels", name)
		}
		exprs[name] = expr
	}
	return exprs
}

// The dashboard and the alerts name only metrics that exist; the table in the README has each of them, with
// the unit that it has in OpenTelemetry and the alerts that use it.
func TestNames(t *testing.T) {
	names := promNames(t)
	for _, file := range []string{"README.md", "grafana.json", "alerts.yml", "alerts_test.yml"} {
		found := promName.FindAllString(read(t, file), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range found {
			if !names[name] && !names[suffix.ReplaceAllString(name, "")] {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
		}
	}
	units := otelUnits(t)
	exprs := alerts(t)
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `([\\w.]+)` \\| `(\\S+)` \\| .+ \\| (.+) \\|$").
		FindAllStringSubmatch(read(t, "README.md"), -1)
	for _, row := range rows {
		prom, otel, unit, said := row[1], row[2], row[3], alertName.FindAllString(row[4], -1)
		if !names[prom] {
			t.Errorf("README: a row too many for %s", prom)
		}
		if got, ok := units[otel]; !ok || got != unit {
			t.Errorf("README: %s in %s; it is in %q (there: %v)", otel, unit, got, ok)
		}
		if seconds := strings.HasSuffix(prom, "_seconds"); seconds != (unit == "s") {
			t.Errorf("README: %s in %s", prom, unit)
		}
		delete(names, prom)
		delete(units, otel)
		var use []string
		for alert, expr := range exprs {
			for _, name := range promName.FindAllString(expr, -1) {
				if name == prom || suffix.ReplaceAllString(name, "") == prom {
					use = append(use, alert)
				}
			}
		}
		slices.Sort(use)
		slices.Sort(said)
		if !slices.Equal(slices.Compact(use), said) || len(said) == 0 && row[4] != "none" {
			t.Errorf("README: %s has the alerts %v (%q), those that use it are %v", prom, said, row[4], use)
		}
	}
	if len(names) > 0 || len(units) > 0 {
		t.Errorf("README: no row for %v %v", slices.Sorted(maps.Keys(names)), units)
	}
	for name := range exprs {
		if !strings.Contains(read(t, "alerts_test.yml"), "alertname: "+name+"\n") {
			t.Errorf("alert %s has no unit test", name)
		}
	}
}

// A queue that cannot be read is said to be so before Prometheus gives up on the page.
func TestReadingEndsBeforeTheScrape(t *testing.T) {
	at := regexp.MustCompile(`scrape_timeout: (\S+)`).FindStringSubmatch(read(t, "../examples/observed/prometheus.yml"))
	if at == nil {
		t.Fatal("prometheus.yml has no scrape_timeout")
	}
	if d, err := time.ParseDuration(at[1]); err != nil || observe.DefaultTimeout > d-time.Second {
		t.Errorf("scrapes end after %s %v, readings after %v", at[1], err, observe.DefaultTimeout)
	}
}

func TestAlerts(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "alerts.yml"},
		{"test", "rules", "alerts_test.yml"}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s (make test-all installs it): %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
