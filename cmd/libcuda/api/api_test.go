package api

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSymbolsAreComplete counts what libcuda exports: CUDA 13.0's headers declare 672 functions.
func TestSymbolsAreComplete(t *testing.T) {
	a, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	names, _ := a.Symbols()
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] || !strings.HasPrefix(n, "cu") {
			t.Errorf("symbol %q", n)
		}
		seen[n] = true
	}
	if len(names) < 714 {
		t.Errorf("%d symbols, want 714", len(names))
	}
	for _, n := range []string{"cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuMemcpyHtoD_v2_ptds", "cuLaunchKernel_ptsz", "cuGetProcAddress_v2", "cuCtxCreate_v4", "cuLogicalEndpointQuery", "cuGLInit"} {
		if !seen[n] {
			t.Errorf("%s is missing", n)
		}
	}
}

// TestHeaderCompiles compiles the header as C and as C++, for each form of it, and checks the sizes
// of structures against those of CUDA's documentation.
func TestHeaderCompiles(t *testing.T) {
	for _, language := range []string{"c", "c++"} {
		for _, flags := range [][]string{{"-DCUDA_VERSION=11080"}, nil, {"-DCUDA_VERSION=13000"}, {"-DCUDA_API_PER_THREAD_DEFAULT_STREAM"}} {
			program := filepath.Join(t.TempDir(), "sizes")
			cmd := exec.Command("gcc", append(flags, "-Wall", "-Wextra", "-Werror", "-x", language, "-I../include", "-c", "-o", program, "testdata/sizes.c")...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %v\n%s", cmd, err, out)
			}
		}
	}
}
