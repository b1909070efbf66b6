package observe

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

var metricName = regexp.MustCompile(`\b(lockkeeper_[a-z_]+|process_[a-z_]+|go_[a-z_]+)\b`)

// metricsIn lists the metrics that a text names, without what Prometheus adds to the
// names of histograms.
func metricsIn(text string, known []string) (names []string) {
	for _, name := range metricName.FindAllString(text, -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(name, suffix); cut && slices.Contains(known, base) {
				name = base
			}
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// allMetrics are the names of all metrics of a server that is a node of a cluster.
func allMetrics(t *testing.T) (names []string) {
	cluster := func() lockkeeper.ClusterStatus { return lockkeeper.ClusterStatus{} }
	for _, f := range familiesOf(t, NewMetrics(Sources{Cluster: cluster})) {
		names = append(names, f.GetName())
	}
	return names
}

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	must(t, text, err)
	return string(text)
}

// The dashboard shows every metric of ours, and none that is not there.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, 0, json.Unmarshal([]byte(readFile(t, "..", "..", "..", "deploy", "grafana.json")), &dashboard))
	known := allMetrics(t)
	var shown []string
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			for _, name := range metricsIn(target.Expr, known) {
				shown = append(shown, name)
				if !slices.Contains(known, name) {
					t.Errorf("panel %q shows %s, which no server has", p.Title, name)
				}
			}
		}
	}
	for _, name := range known {
		if strings.HasPrefix(name, "lockkeeper_") && !slices.Contains(shown, name) {
			t.Errorf("no panel of deploy/grafana.json shows %s", name)
		}
	}
}

// Alerts are about metrics that are there, and each is explained.
func TestAlerts(t *testing.T) {
	known := allMetrics(t)
	alerts := readFile(t, "..", "..", "..", "deploy", "alerts.yml")
	manual := readFile(t, "..", "..", "..", "docs", "operations.md")
	for _, name := range metricsIn(alerts, known) {
		if !slices.Contains(known, name) {
			t.Errorf("deploy/alerts.yml is about %s, which no server has", name)
		}
	}
	for _, found := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(alerts, -1) {
		if !strings.Contains(manual, found[1]) {
			t.Errorf("docs/operations.md does not say what to do about %s", found[1])
		}
	}
}

// The manual's table has every metric of ours with what the server says of it.
func TestMetricsInTheManual(t *testing.T) {
	manual := readFile(t, "..", "..", "..", "docs", "operations.md")
	for _, f := range familiesOf(t, NewMetrics(Sources{})) {
		if row := "| `" + f.GetName() + "` | " + strings.ToLower(f.GetType().String()) + " | " + f.GetHelp() +
			" |"; strings.HasPrefix(f.GetName(), "lockkeeper_") && !strings.Contains(manual, row+"\n") {
			t.Errorf("docs/operations.md lacks the row\n%s", row)
		}
	}
	for _, name := range metricsIn(manual, allMetrics(t)) {
		if strings.HasPrefix(name, "lockkeeper_") && !slices.Contains(allMetrics(t), name) {
			t.Errorf("docs/operations.md names %s, which no server has", name)
		}
	}
}

// Every event that the audit log may have is in the manual.
func TestEventsInTheManual(t *testing.T) {
	manual := readFile(t, "..", "..", "..", "docs", "operations.md")
	for _, event := range []string{"granted", "held", "ended", "asked", "frozen", "thawed", "denied", "operator", "failed",
		"started", "stopped", "gap"} {
		if !strings.Contains(manual, "| `"+event+"` |") {
			t.Errorf("docs/operations.md lacks the event %s", event)
		}
	}
}
