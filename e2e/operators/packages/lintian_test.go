package packages

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"vgpud/e2e/operators"
)

// maxOverrides is how many kinds of lintian's tags may be overridden.
const maxOverrides = 5

// TestLintian: lintian has nothing to say about the packages but what is overridden, and each kind
// of override has its reason above it and is used.
func TestLintian(t *testing.T) {
	r := newRoot(t, "lint.tar")
	kinds := map[string]bool{}
	for _, name := range names {
		out, err := r.try("lintian --show-overrides --allow-root " + r.copy(operators.Built(t).Deb(t, name)))
		t.Logf("%s\n%s", name, out)
		if err != nil {
			t.Errorf("lintian: %v", err)
		}
		for line := range strings.Lines(out) {
			switch {
			case strings.HasPrefix(line, "O: "):
				kinds[strings.Fields(line)[2]] = true
			case regexp.MustCompile(`^[A-Z]: `).MatchString(line) && !strings.HasPrefix(line, "N: "):
				t.Errorf("lintian: %s", line)
			}
		}
		r.run("dpkg-deb -x /tmp/" + name + "_*.deb /tmp/" + name)
		checkReasons(t, name, r.read("/tmp/"+name+"/usr/share/lintian/overrides/"+name))
	}
	if len(kinds) == 0 || len(kinds) > maxOverrides {
		t.Errorf("%d kinds of tags are overridden, at most %d may be: %v", len(kinds), maxOverrides, kinds)
	}
	t.Logf("%d kinds of tags are overridden: %v", len(kinds), kinds)
}

// checkReasons checks that a comment stands above each group of overrides.
func checkReasons(t *testing.T, name, overrides string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(overrides), "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
	if i != 0 {
		t.Errorf("%s: the first override has no reason:\n%s", name, overrides)
	}
}
