package vm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
	"vgpud/vfio/qemu"
)

// cudaLibraries are where the guest's dynamic linker looks without a cache, and cudaPrograms where
// CUDA programs are.
const (
	cudaLibraries = "lib/x86_64-linux-gnu/"
	cudaPrograms  = "cuda/"
)

// cudaFiles are the files that CUDA programs need in a guest: by their paths there, where they are
// here.
type cudaFiles struct {
	tb    testing.TB
	dir   string
	files map[string]string
}

// run runs a command of the build, which must succeed.
func (c *cudaFiles) run(env []string, args ...string) string {
	c.tb.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.tb.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// newCUDAFiles builds the libraries that CUDA programs load.
func newCUDAFiles(tb testing.TB) *cudaFiles {
	tb.Helper()
	for _, tool := range []string{"gcc", "ldd"} {
		if _, err := exec.LookPath(tool); err != nil {
			tb.Skipf("no %s: %v", tool, err)
		}
	}
	c := &cudaFiles{tb: tb, dir: tb.TempDir(), files: map[string]string{}}
	c.run(nil, "../../scripts/cuda-libs.sh", c.dir)
	for _, lib := range []string{"libcuda.so.1", "libvgpucuda.so"} {
		c.library(filepath.Join(c.dir, lib))
	}
	return c
}

// library adds one of our libraries with those that it needs.
func (c *cudaFiles) library(path string) {
	c.tb.Helper()
	c.files[cudaLibraries+filepath.Base(path)] = path
	c.needs(path)
}

// needed is a line of ldd's: a library's path, or that of the linker.
var needed = regexp.MustCompile(`(?m)^\s*(?:(\S+) => )?(/\S+) \(0x`)

// needs adds the libraries of this machine that a file needs, and its dynamic linker.
func (c *cudaFiles) needs(path string) {
	c.tb.Helper()
	for _, m := range needed.FindAllStringSubmatch(c.run([]string{"LD_LIBRARY_PATH=" + c.dir}, "ldd", path), -1) {
		name, from := m[1], m[2]
		switch {
		case strings.HasPrefix(from, c.dir):
		case name == "": // the linker: programs have its path in them
			c.files[strings.TrimPrefix(from, "/")] = from
		default:
			c.files[cudaLibraries+name] = from
		}
	}
}

// compile compiles a program for the driver API.
func (c *cudaFiles) compile(source string) {
	c.tb.Helper()
	program := filepath.Join(c.dir, strings.TrimSuffix(filepath.Base(source), ".c"))
	c.run(nil, "gcc", "-std=gnu11", "-O1", "-I../../cmd/libcuda/include", "-I../cuda/testdata", "-o", program, source, "-L"+c.dir, "-lcuda", "-lpthread")
	c.program(program)
}

func (c *cudaFiles) program(path string) {
	c.files[cudaPrograms+filepath.Base(path)] = path
	c.needs(path)
}

// compileCUDA compiles a CUDA C++ program over the shared runtime, and reports whether there is a
// compiler.
func (c *cudaFiles) compileCUDA(source string) bool {
	c.tb.Helper()
	deps := os.Getenv("VGPUD_CLANG_DEPS")
	if cache, err := os.UserCacheDir(); err == nil && deps == "" {
		deps = filepath.Join(cache, "vgpud", "clang")
	}
	compiler := filepath.Join(deps, "bin/clang++")
	if _, err := os.Stat(compiler); err != nil {
		return false
	}
	c.run(nil, "../../cmd/libcudart/build.sh", c.dir)
	c.run(nil, "../../cmd/libcudart/tree.sh", filepath.Join(c.dir, "cuda"), c.dir)
	program := filepath.Join(c.dir, strings.TrimSuffix(filepath.Base(source), ".cu"))
	c.run([]string{"CUDA_CLANG=" + compiler}, filepath.Join(c.dir, "cuda/bin/cuda-cc"), "-std=c++17", "-O2", "-I../cuda/testdata", "-o", program, source)
	for _, lib := range strings.Fields(c.run(nil, "sh", "-c", "ls "+c.dir+"/libcudart.so.1*")) {
		c.library(lib)
	}
	c.program(program)
	return true
}

// initramfs writes the guests' usual initramfs with these files added, and returns its path.
func (c *cudaFiles) initramfs(usual string) string {
	c.tb.Helper()
	more, both := filepath.Join(c.dir, "more.cpio"), filepath.Join(c.dir, "both.cpio")
	args := []string{"go", "run", "../../vfio/qemu/internal/initramfs", "-o", more}
	for name, path := range c.files {
		args = append(args, name+"="+path)
	}
	c.run(nil, args...)
	var all []byte
	for _, path := range []string{usual, more} {
		b, err := os.ReadFile(path)
		if err != nil {
			c.tb.Fatal(err)
		}
		all = append(all, b...)
	}
	if err := os.WriteFile(both, all, 0o644); err != nil {
		c.tb.Fatal(err)
	}
	return both
}

// TestCUDAPrograms runs CUDA programs in a real VM, as they are: one for the driver API, built by gcc,
// and one over the shared runtime, built by clang. Then programs are killed while they compute, and
// the device is unplugged under one: nothing is left behind, and nothing hangs.
func TestCUDAPrograms(t *testing.T) {
	c := newCUDAFiles(t)
	c.compile("../cuda/testdata/vectoradd.c")
	c.compile("../cuda/testdata/evictable.c")
	c.compile("testdata/loop.c")
	runtime := c.compileCUDA("../cuda/testdata/rt_basic.cu")

	h := withTimeout(host.Start(t, "dfq", slowGPU...))
	gpu := h.NewVM(api.VMSpec{Name: "vm1"})
	deps, err := qemu.Find("")
	if err != nil {
		t.Fatal(err)
	}
	deps.Initramfs = c.initramfs(deps.Initramfs)
	m := bootWith(t, h, qemu.Options{Name: "vm1", IOMMU: true, SparePorts: 1, MemoryMiB: 256, Deps: deps})
	m.ready()
	plug := func() {
		t.Helper()
		m.do(func(ctx context.Context) error {
			return m.vm.Plug(ctx, qemu.Device{ID: "cuda", Socket: gpu.Socket, Bus: qemu.SparePort(0)})
		})
		m.prepared(1)
	}
	plug()
	if out := m.out("/" + cudaPrograms + "vectoradd"); out != "right\n" {
		t.Errorf("vectoradd printed %q", out)
	}
	t.Run("runtime", func(t *testing.T) {
		if !runtime {
			t.Skip("no clang: run `make clang-deps`")
		}
		if out := m.out("/" + cudaPrograms + "rt_basic"); !strings.HasSuffix(out, "right\n") {
			t.Errorf("rt_basic printed %q", out)
		}
	})
	m.cleared()
	t.Run("evictions", func(t *testing.T) {
		policy := "hpf"
		if _, err := h.Client.UpdateGPU(t.Context(), host.GPUName, api.GPUUpdate{Policy: &policy}); err != nil {
			t.Fatal(err)
		}
		h.Disturb()
		for range 50 {
			m.out("/" + cudaPrograms + "evictable")
			if h.VM("vm1").Preemption.Evictions >= 10 {
				return
			}
		}
		t.Errorf("its kernels were evicted %d times", h.VM("vm1").Preemption.Evictions)
	})
	m.cleared()

	// Killed at any moment: while it starts, opens its channels, or computes.
	for range 4 {
		p, err := m.vm.Run(context.Background(), qemu.Command{Args: []string{"/" + cudaPrograms + "loop"}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(2 * time.Second)) // waits for nothing: it is the moment of the kill
		if err := p.Signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("it was killed, and ended with %v", err)
		}
	}
	m.cleared()
	if out := m.out("/" + cudaPrograms + "vectoradd"); out != "right\n" {
		t.Errorf("vectoradd printed %q after others were killed", out)
	}

	p, err := m.vm.Run(context.Background(), qemu.Command{Args: []string{"/" + cudaPrograms + "loop"}})
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 16)
	ended := make(chan error, 1)
	go func() {
		for line := range p.Lines() {
			lines <- line
		}
		close(lines)
		ended <- p.Wait()
	}()
	if line := <-lines; line != "computes" {
		t.Fatalf("it printed %q", line)
	}
	m.do(func(ctx context.Context) error { return m.vm.Unplug(ctx, "cuda") })
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("without its device it ended with %v", err)
		}
	case <-time.After(bootLimit):
		t.Fatal("the program hangs without its device")
	}
	if line := <-lines; !strings.HasPrefix(line, "failed: CUDA_ERROR_") {
		t.Errorf("without its device it printed %q", line)
	}
	m.prepared(0)
	plug()
	if out := m.out("/" + cudaPrograms + "vectoradd"); out != "right\n" {
		t.Errorf("vectoradd printed %q on the device that was plugged again", out)
	}
	m.cleared()
}

// cleared waits until neither the agent nor the host has anything left of programs.
func (m *machine) cleared() {
	m.tb.Helper()
	m.h.Until("nothing left of programs", func() error {
		if d := m.prepared(1)[0]; len(d.Tenants) != 0 {
			return fmt.Errorf("programs: %+v", d.Tenants)
		}
		if v := m.h.VM("vm1"); v.Contexts != 0 {
			return fmt.Errorf("%d contexts", v.Contexts)
		}
		return nil
	})
}
