package drivertest

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// versions are the libraries and the version that a program of each is compiled for.
var versions = []struct{ library, version string }{
	{"libcudart.so.11.0", "11080"},
	{"libcudart.so.12", "12090"},
	{"libcudart.so.13", "13000"},
}

// built is the folder of the recording driver and of those of the runtime's libraries that a test
// has needed, each with its error.
var built struct {
	once sync.Once
	dir  string
	err  error
	libs map[string]error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// folder returns a folder with the recording driver and a library of the runtime, which it builds
// once. It is not called concurrently.
func folder(tb testing.TB, library string) string {
	tb.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		tb.Skip("no C compiler: the runtime is not built")
	}
	built.once.Do(func() {
		built.libs = make(map[string]error)
		if built.dir, built.err = os.MkdirTemp("", "vgpud-cudart-"); built.err == nil {
			built.err = build("gcc", "-shared", "-fPIC", "-O2", "-Wall", "-I..", "-I../../libcuda/include", "-Wl,-soname,libcuda.so.1",
				"-o", filepath.Join(built.dir, "libcuda.so.1"), "testdata/driver.c", "testdata/defaults.c")
		}
	})
	if built.err != nil {
		tb.Fatal(built.err)
	}
	err, known := built.libs[library]
	if !known {
		err = build("../build.sh", built.dir, library)
		built.libs[library] = err
	}
	if err != nil {
		tb.Fatal(err)
	}
	return built.dir
}

// build runs a command that builds something.
func build(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}

// program compiles the test program for a version, and returns the command that runs it.
func program(tb testing.TB, library, version string, args ...string) *exec.Cmd {
	tb.Helper()
	dir := folder(tb, library)
	path := filepath.Join(tb.TempDir(), "program")
	cmd := exec.CommandContext(tb.Context(), "gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-DCUDART_VERSION="+version,
		"-I../include", "-o", path, "testdata/program.c", filepath.Join(dir, library), filepath.Join(dir, "libcuda.so.1"))
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	run := exec.CommandContext(tb.Context(), path, args...)
	run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	return run
}

// TestMajorVersions runs a program of each major version with its own library.
func TestMajorVersions(t *testing.T) {
	for _, v := range versions {
		t.Run(v.version, func(t *testing.T) {
			out, err := program(t, v.library, v.version).CombinedOutput()
			if err != nil || string(out) != "right\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestExports compares the libraries' symbols and their version with the version scripts, which are
// made from api.txt.
func TestExports(t *testing.T) {
	for _, v := range versions {
		dir := folder(t, v.library)
		f, err := elf.Open(filepath.Join(dir, v.library))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if name, err := f.DynString(elf.DT_SONAME); err != nil || !slices.Equal(name, []string{v.library}) {
			t.Errorf("%s: its soname is %q, %v", v.library, name, err)
		}
		if needed, err := f.ImportedLibraries(); err != nil || slices.ContainsFunc(needed, func(l string) bool { return strings.HasPrefix(l, "libcuda") }) {
			t.Errorf("%s needs %v, %v", v.library, needed, err)
		}
		script, err := os.ReadFile("../cudart-" + v.version[:2] + ".map")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(script), "\n"+v.library+" {") {
			t.Errorf("%s: the version script names another node", v.library)
		}
		var want, got []string
		for _, m := range regexp.MustCompile(`(?m)^    (\w+);$`).FindAllStringSubmatch(string(script), -1) {
			want = append(want, m[1])
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF && s.Section != elf.SHN_ABS {
				got = append(got, s.Name)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: symbols (-want +got):\n%s", v.library, diff)
		}
	}
}

// TestNoDriver runs a program where there is no driver.
func TestNoDriver(t *testing.T) {
	dir := folder(t, "libcudart.so.12")
	path := filepath.Join(t.TempDir(), "program")
	source := path + ".c"
	text := "#include <cuda_runtime_api.h>\n#include <stdio.h>\nint main(void) { int n = 7, v = 7; cudaError_t e = cudaGetDeviceCount(&n);\n" +
		"cudaError_t d = cudaDriverGetVersion(&v); printf(\"%d %d %d %d %s\\n\", e, n, d, v, cudaGetErrorString(e)); return 0; }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lone := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "libcudart.so.12"), filepath.Join(lone, "libcudart.so.12")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-I../include", "-o", path, source, filepath.Join(dir, "libcudart.so.12")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), path)
	run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lone)
	out, err := run.CombinedOutput()
	if want := "35 0 0 0 CUDA driver version is insufficient for CUDA runtime version\n"; err != nil || string(out) != want {
		t.Errorf("%v: got %q, want %q", err, out, want)
	}
}

// BenchmarkLaunch measures what a launch costs above the driver's function.
func BenchmarkLaunch(b *testing.B) {
	for range b.N {
		out, err := program(b, "libcudart.so.12", "12090", "bench").CombinedOutput()
		ns, parseErr := strconv.ParseFloat(strings.TrimSuffix(string(out), " ns\n"), 64)
		if err != nil || parseErr != nil {
			b.Fatalf("%v, %v: %s", err, parseErr, out)
		}
		b.ReportMetric(ns, "ns/launch")
	}
}
