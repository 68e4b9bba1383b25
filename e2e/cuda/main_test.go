package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"vgpud/e2e/host"
	"vgpud/guestagent/cuda"
	"vgpud/mediator/api"
)

func TestMain(m *testing.M) {
	code := m.Run()
	errs := []error{host.Cleanup()}
	if libraries.dir != "" {
		errs = append(errs, os.RemoveAll(libraries.dir))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// libraries is the folder of the libraries and of compiled programs.
var libraries struct {
	once sync.Once
	dir  string
	err  error
}

// folder builds the libraries of this tree, once.
func folder(tb testing.TB) string {
	tb.Helper()
	l := &libraries
	l.once.Do(func() {
		if l.dir, l.err = os.MkdirTemp("", "vgpud-cuda-"); l.err != nil {
			return
		}
		out, err := exec.Command("../../scripts/cuda-libs.sh", l.dir).CombinedOutput()
		if err != nil {
			l.err = fmt.Errorf("build the libraries: %w\n%s", err, out)
		}
	})
	if l.err != nil {
		tb.Fatal(l.err)
	}
	return l.dir
}

// compile compiles a program of testdata and returns its path. One that is there already stays.
func compile(tb testing.TB, name string, flags ...string) string {
	tb.Helper()
	dir := folder(tb)
	program := filepath.Join(dir, strings.TrimSuffix(name, ".c")+strings.NewReplacer("/", "_", " ", "").Replace(strings.Join(flags, "")))
	if _, err := os.Stat(program); err == nil {
		return program
	}
	args := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I../../cmd/libcuda/include", "-Itestdata"}, flags...)
	args = append(args, "-o", program, filepath.Join("testdata", name), "-L"+dir, "-lcuda", "-lpthread", "-ldl", "-lm")
	cmd := exec.Command("gcc", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return program
}

// guest is a virtual GPU without a VM, and the environment of programs that use it.
type guest struct {
	h   *host.Host
	vm  api.VM
	env []string
}

// newGuest creates a host with one guest.
func newGuest(tb testing.TB, gpuFlags ...string) *guest {
	tb.Helper()
	h := host.Start(tb, "none", gpuFlags...)
	return guestOf(tb, h, api.VMSpec{Name: "tenant"})
}

func guestOf(tb testing.TB, h *host.Host, s api.VMSpec) *guest {
	tb.Helper()
	vm := h.NewVM(s)
	return &guest{h, vm, append(os.Environ(), "LD_LIBRARY_PATH="+folder(tb), cuda.SocketVariable+"="+vm.Socket)}
}

// command returns a program of testdata to be run on the guest's virtual GPU.
func (g *guest) command(tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), compile(tb, name), args...)
	cmd.Env = g.env
	return cmd
}

// run runs a program of testdata and returns what it printed.
func (g *guest) run(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	cmd := g.command(tb, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
