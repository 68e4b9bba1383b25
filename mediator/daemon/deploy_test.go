package daemon

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestDeployedQueries: the alert rules and the dashboard in deploy/ ask for metrics that there are.
func TestDeployedQueries(t *testing.T) {
	name := regexp.MustCompile(`\bvgpud_[a-z_]+`)
	var there []string
	for _, m := range regexp.MustCompile(`(?m)^# (?:HELP|TYPE) (vgpud_[a-z_]+)(?: (histogram))?`).FindAllStringSubmatch(scrape(t, twoGuests), -1) {
		there = append(there, m[1])
		if m[2] == "histogram" {
			there = append(there, m[1]+"_bucket", m[1]+"_count", m[1]+"_sum")
		}
	}
	for _, file := range []string{"../../deploy/prometheus/vgpud.rules.yaml", "../../deploy/grafana/vgpud.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		asked := sorted(name.FindAllString(string(text), -1))
		if len(asked) < 10 {
			t.Errorf("%s asks for %d metrics only", file, len(asked))
		}
		for _, n := range asked {
			if !slices.Contains(there, n) {
				t.Errorf("%s asks for %s, which is no metric", file, n)
			}
		}
	}
}

// TestUnitRestartsSoon: systemd waits no more than a tenth of the second in which the next daemon is to
// have the state back, and tries for some seconds before it gives up.
func TestUnitRestartsSoon(t *testing.T) {
	text, err := os.ReadFile("../../deploy/vgpud.service")
	if err != nil {
		t.Fatal(err)
	}
	setting := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("the unit has no %s=", name)
		}
		return string(m[1])
	}
	wait, err := time.ParseDuration(setting("RestartSec"))
	if err != nil || wait > 100*time.Millisecond {
		t.Errorf("systemd waits %s before it starts the daemon again (%v)", setting("RestartSec"), err)
	}
	burst, err := strconv.Atoi(setting("StartLimitBurst"))
	if tries := time.Duration(burst) * wait; err != nil || tries < 3*time.Second {
		t.Errorf("systemd gives up after %v (%v)", tries, err)
	}
}
