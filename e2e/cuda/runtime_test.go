package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// toolkit is the folder where the runtime's libraries, its headers and cuda-cc are put together.
var toolkit struct {
	once sync.Once
	err  error
}

// clang returns the compiler that `make clang-deps` got.
func clang(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("VGPUD_CLANG_DEPS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			tb.Fatal(err)
		}
		dir = filepath.Join(cache, "vgpud", "clang")
	}
	path := filepath.Join(dir, "bin", "clang++")
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("no clang (%v): run `make clang-deps`", err)
	}
	return path
}

// compileCUDA compiles a CUDA C++ program of testdata with cuda-cc and returns its path. One that is
// there already stays.
func compileCUDA(tb testing.TB, name string, flags ...string) string {
	tb.Helper()
	compiler := clang(tb)
	dir := folder(tb)
	toolkit.once.Do(func() {
		for _, script := range [][]string{{"build.sh", dir}, {"tree.sh", filepath.Join(dir, "cuda"), dir}} {
			cmd := exec.Command(filepath.Join("../../cmd/libcudart", script[0]), script[1:]...)
			if out, err := cmd.CombinedOutput(); err != nil {
				toolkit.err = fmt.Errorf("%v: %w\n%s", cmd, err, out)
				return
			}
		}
	})
	if toolkit.err != nil {
		tb.Fatal(toolkit.err)
	}
	program := filepath.Join(dir, strings.TrimSuffix(name, ".cu")+strings.NewReplacer("/", "_", " ", "").Replace(strings.Join(flags, "")))
	if _, err := os.Stat(program); err == nil {
		return program
	}
	args := append([]string{"-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-Itestdata", "-o", program, filepath.Join("testdata", name)}, flags...)
	cmd := exec.Command(filepath.Join(dir, "cuda/bin/cuda-cc"), args...)
	cmd.Env = append(os.Environ(), "CUDA_CLANG="+compiler)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return program
}

// runCUDA runs a CUDA C++ program of testdata and returns what it printed.
func (g *guest) runCUDA(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), compileCUDA(tb, name), args...)
	cmd.Env = g.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestRuntimePrograms runs CUDA C++ programs that check their results against the CPU.
func TestRuntimePrograms(t *testing.T) {
	programs, err := filepath.Glob("testdata/rt_*.cu")
	if err != nil || len(programs) == 0 {
		t.Fatalf("programs: %v, %v", programs, err)
	}
	for _, p := range programs {
		name := filepath.Base(p)
		t.Run(strings.TrimSuffix(name, ".cu"), func(t *testing.T) {
			g := newGuest(t)
			if out := g.runCUDA(t, name); !strings.HasSuffix(out, "right\n") {
				t.Errorf("it printed %q", out)
			}
		})
	}
}

// TestTextureReferences runs a program for CUDA 11.
func TestTextureReferences(t *testing.T) { newGuest(t).textureReferences(t) }

func (g *guest) textureReferences(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), compileCUDA(t, "texref.cu", "-DCUDART_VERSION=11080"))
	cmd.Env = g.env
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "right\n" {
		t.Errorf("it printed %q: %v", out, err)
	}
}

// TestRuntimeAssertion runs a kernel whose assertion fails: the message says where, the error stays
// until the device is reset.
func TestRuntimeAssertion(t *testing.T) {
	g := newGuest(t)
	out := g.runCUDA(t, "rt_output.cu", "fail")
	for _, want := range []string{
		"block 0 of 2: text 1.50 x 1099511627776\n",
		"block: [0,0,0], thread: [31,0,0] Assertion `(int)threadIdx.x < limit` failed.\n",
		"right\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it printed %q, want in it %q", out, want)
		}
	}
}
