package placement

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPolicy: the rights that docs/placement.md lists are those of the policy that is shipped.
func TestPolicy(t *testing.T) {
	rules := func(path string) []string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all := regexp.MustCompile(`(?m)^"(placement:[a-z_:]+)":`).FindAllString(string(b), -1)
		slices.Sort(all)
		return all
	}
	shipped := rules("../../../deploy/nova/placement-policy.yaml")
	if diff := cmp.Diff(shipped, rules("../../../docs/placement.md")); diff != "" || len(shipped) < 10 {
		t.Errorf("the rules (-shipped +described):\n%s", diff)
	}
}
