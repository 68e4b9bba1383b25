package dashboards

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"vgpud/e2e/operators"
)

const (
	rulesFile     = "../../../deploy/prometheus/vgpud.rules.yaml"
	rulesTestFile = "testdata/rules_test.yaml"
)

// rule is an alert of the rules' file.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Annotations map[string]string `yaml:"annotations"`
}

// readRules returns the alerts of the rules' file.
func readRules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	readYAML(t, rulesFile, &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func readYAML(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestEveryAlertIsTested: promtool is told when each alert fires and when it does not.
func TestEveryAlertIsTested(t *testing.T) {
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name     string `yaml:"alertname"`
				Expected []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, rulesTestFile, &file)
	var fires, rests, want []string
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Expected) > 0 {
				fires = append(fires, a.Name)
			} else {
				rests = append(rests, a.Name)
			}
		}
	}
	for _, r := range readRules(t) {
		want = append(want, r.Alert)
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: want a summary and a description", r.Alert)
		}
	}
	if len(want) == 0 {
		t.Fatal("there are no rules")
	}
	slices.Sort(want)
	for what, names := range map[string][]string{"firing": fires, "not firing": rests} {
		slices.Sort(names)
		if diff := cmp.Diff(want, slices.Compact(names)); diff != "" {
			t.Errorf("alerts that are tested as %s (-there are +tested):\n%s", what, diff)
		}
	}
}

// TestRules has Debian's promtool check the rules and run their unit tests.
func TestRules(t *testing.T) {
	operators.Require(t)
	promtool := operators.Program(t, "promtool")
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", rulesTestFile}} {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		t.Logf("promtool %v\n%s", args, out)
		if err != nil {
			t.Errorf("promtool %v: %v", args, err)
		}
	}
}
