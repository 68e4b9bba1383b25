package cuda

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vgpud/cmd/libcuda/api"
)

// TestBuiltFunctionsAreCalled checks that each function that the API's description calls built, in
// whole or in part, is called by a program of testdata, by this or a newer name.
func TestBuiltFunctionsAreCalled(t *testing.T) {
	a, err := api.Load()
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{}
	files, err := filepath.Glob("testdata/*.c")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`\b(cu[A-Z]\w*)\(`)
	form := regexp.MustCompile(`(_v\d)?(_ptsz|_ptds)?$`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			called[form.ReplaceAllString(m[1], "")] = true
		}
		// Old names are called through what dlsym returns.
		for _, s := range strings.Split(string(text), `"`) {
			called[form.ReplaceAllString(s, "")] = true
		}
	}
	for i := range a.Functions {
		f := &a.Functions[i]
		if (f.State == api.Built || f.State == api.Partly) && !called[f.Base()] {
			t.Errorf("%s is said to be built, and no program calls it", f.Name)
		}
	}
}
