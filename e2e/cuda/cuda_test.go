package cuda

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vgpud/guestagent/cuda"
	"vgpud/guestagent/fatbin"
)

// TestVectorAdd runs the simplest program.
func TestVectorAdd(t *testing.T) {
	g := newGuest(t)
	if out := g.run(t, "vectoradd.c"); strings.TrimSpace(out) != "right" {
		t.Errorf("it printed %q", out)
	}
}

// programs check the API, one part each.
var programs = []string{
	"device", "context", "memory", "boxes", "batch", "streams", "sidebyside", "launches", "entry", "graph", "graphold", "graphmemory", "capture", "pool", "texture", "vmm", "managed", "incallback", "callbacks", "threads", "faults", "tables", "evictable",
}

// TestPrograms runs the programs that check the API, one part each.
func TestPrograms(t *testing.T) {
	g := newGuest(t)
	for _, name := range programs {
		t.Run(name, func(t *testing.T) { g.run(t, name+".c") })
	}
}

// TestModules runs the program about modules, with a file of PTX to write and a fat binary.
func TestModules(t *testing.T) {
	g := newGuest(t)
	dir := t.TempDir()
	ptx := `.version 7.0
.target sm_80
.address_size 64
.visible .entry step(.param .u64 out) {
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, 44;
	st.global.u32 [%rd1], %r1;
	ret;
}
`
	image, err := fatbin.Append(nil, fatbin.Image{Kind: fatbin.PTX, Major: 7, SM: 80, Data: []byte(ptx), Compression: fatbin.LZ4})
	if err != nil {
		t.Fatal(err)
	}
	fat := filepath.Join(dir, "step.fatbin")
	if err := os.WriteFile(fat, image, 0o600); err != nil {
		t.Fatal(err)
	}
	g.run(t, "modules.c", filepath.Join(dir, "module.ptx"), fat)
}

// TestPrintf checks that kernels' output is among the program's own, where it synchronizes.
func TestPrintf(t *testing.T) {
	g := newGuest(t)
	want := `begin
1 said
after the context
2 said
after the stream
3 said
after the event
4 said
after the copy
5 said
after the context's end
6 said
`
	if got := g.run(t, "printf.c"); got != want {
		t.Errorf("it printed\n%s\nwant\n%s", got, want)
	}
}

// TestPrintfBeforeTrap checks that what a kernel printed before it trapped isn't lost.
func TestPrintfBeforeTrap(t *testing.T) {
	g := newGuest(t)
	if got, want := g.run(t, "printf.c", "trap"), "8 said\n9 said\nafter the trap\n"; got != want {
		t.Errorf("it printed %q, want %q", got, want)
	}
}

// TestAssert checks the message of a failed assertion.
func TestAssert(t *testing.T) {
	g := newGuest(t)
	want := "k.cu:42: kern: block: [0,0,0], thread: [0,0,0] Assertion `x < y` failed.\n"
	if got := g.run(t, "asserts.c"); got != want {
		t.Errorf("it printed %q, want %q", got, want)
	}
}

// TestSignals runs programs with handlers of signals, installed before and after the library is
// loaded. The default action of a signal ends a program that waits for a kernel.
func TestSignals(t *testing.T) {
	g := newGuest(t)
	g.run(t, "signals.c", "early")
	g.run(t, "signals.c", "late")
	cmd := g.command(t, "signals.c", "early", "default")
	err := cmd.Run()
	if ee, ok := errors.AsType[*exec.ExitError](err); !ok || !ee.Sys().(syscall.WaitStatus).Signaled() || ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGALRM {
		t.Errorf("it ended with %v, want the alarm", err)
	}
}

// TestForks checks what children of a process with CUDA have, and one that executes the program.
func TestForks(t *testing.T) {
	g := newGuest(t)
	g.run(t, "forks.c")
	err := g.command(t, "forks.c", "executed").Run()
	if ee, ok := errors.AsType[*exec.ExitError](err); !ok || ee.ExitCode() != 5 {
		t.Errorf("the executed program: %v, want status 5", err)
	}
}

// TestKilled kills programs at any moment. The virtual GPU serves the next.
func TestKilled(t *testing.T) {
	g := newGuest(t)
	for i := range 6 {
		cmd := g.command(t, "threads.c")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 60 * time.Millisecond) // waits for nothing: it is the moment of the kill
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		g.run(t, "vectoradd.c")
	}
}

// TestNoDevice checks what a program without a virtual GPU is told.
func TestNoDevice(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), compile(t, "vectoradd.c"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+folder(t), cuda.AgentVariable+"="+filepath.Join(t.TempDir(), "none"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "CUDA_ERROR_NO_DEVICE") {
		t.Errorf("it ended with %v and said %q", err, out)
	}
}
