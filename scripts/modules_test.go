package scripts_test

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// versions returns the versions that a go.mod requires, by module.
func versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", dir+"/go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, r := range mod.Require {
		all[r.Path] = r.Version
	}
	return all
}

// older reports whether a version is before another, by the numbers of releases. Of others, which
// are named by their dates, it is the text that is compared.
func older(a, b string) bool {
	x, y := strings.Split(strings.TrimPrefix(a, "v"), "."), strings.Split(strings.TrimPrefix(b, "v"), ".")
	for i := range min(len(x), len(y)) {
		m, errM := strconv.Atoi(x[i])
		n, errN := strconv.Atoi(y[i])
		if errM != nil || errN != nil {
			return x[i] < y[i]
		}
		if m != n {
			return m < n
		}
	}
	return false
}

// TestModules checks that the module of vgpu-dra requires what this one does, or later: go refuses to
// build it otherwise, which no other test here would notice.
func TestModules(t *testing.T) {
	nested := versions(t, "../cmd/vgpu-dra")
	common := 0
	for path, v := range versions(t, "..") {
		n, ok := nested[path]
		if !ok {
			continue
		}
		common++
		if older(n, v) {
			t.Errorf("cmd/vgpu-dra/go.mod has %s %s, go.mod has %s: run `go mod tidy` there", path, n, v)
		}
	}
	if common < 5 {
		t.Errorf("only %d modules are required by both", common)
	}
}
