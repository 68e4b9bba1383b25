package cuda

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
)

// running is a program that stays until its standard input ends.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func (g *guest) start(t *testing.T, name string, env ...string) *running {
	t.Helper()
	return g.startWith(t, name, nil, env...)
}

func (g *guest) startWith(t *testing.T, name string, args []string, env ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: g.command(t, name, args...)}
	r.cmd.Env = append(slices.Clone(g.env), env...)
	in, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.in, r.lines = in, bufio.NewScanner(out)
	return r
}

// line waits for the program's next line.
func (r *running) line(want string) {
	r.t.Helper()
	if !r.lines.Scan() || r.lines.Text() != want {
		r.t.Fatalf("printed %q, want %q (%v)", r.lines.Text(), want, r.lines.Err())
	}
}

// launch has the program go on.
func (r *running) launch() {
	r.t.Helper()
	if _, err := io.WriteString(r.in, "\n"); err != nil {
		r.t.Fatal(err)
	}
}

// end ends the program.
func (r *running) end() {
	r.t.Helper()
	if err := r.in.Close(); err != nil {
		r.t.Error(err)
	}
	r.line("done")
	if err := r.cmd.Wait(); err != nil {
		r.t.Error(err)
	}
}

// TestFloatingPrograms runs unchanged CUDA programs of several guests over two GPUs of 1 GiB. Those
// for which no GPU has room wait, and none fails for what others have.
func TestFloatingPrograms(t *testing.T) {
	h := host.StartGPUs(t, 2, "dfq")
	start := func(name string, env ...string) *running {
		g := guestOf(t, h, api.VMSpec{Name: name, Float: true, MemoryLimitBytes: 700 << 20})
		return g.start(t, "floating.c", env...)
	}
	a, b := start("a"), start("b")
	a.line("700 MiB")
	b.line("700 MiB")
	c := start("c")
	h.Until("c's task to wait", func() error {
		all, err := h.Client.Tasks(t.Context())
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all.Tasks, func(x api.Task) bool { return x.VM == "c" && x.State == api.TaskWaits }) {
			return fmt.Errorf("%+v", all.Tasks)
		}
		return nil
	})
	small := start("small", "VGPU_TASK_MEMORY=200M") // there is room beside one of them
	small.line("200 MiB")
	a.end()
	c.line("700 MiB")
	b.end()
	c.end()
	small.end()
	// A guest that does not float is served beside them as before.
	plain := guestOf(t, h, api.VMSpec{Name: "plain"})
	if out := plain.run(t, "vectoradd.c"); strings.TrimSpace(out) != "right" {
		t.Errorf("printed %q", out)
	}
}

// TestProgramsFloat runs the programs that check the API on a guest that floats, where each begins
// its task as late as it can. Some have several contexts at a time, so none may ask for all memory.
func TestProgramsFloat(t *testing.T) {
	h := host.StartGPUs(t, 2, "none")
	g := guestOf(t, h, api.VMSpec{Name: "tenant", Float: true, MemoryLimitBytes: 1 << 30})
	g.env = append(g.env, "VGPU_TASK_MEMORY=160M")
	for _, name := range append(slices.Clone(programs), "vectoradd") {
		t.Run(name, func(t *testing.T) { g.run(t, name+".c") })
	}
	t.Run("runtime", func(t *testing.T) {
		for _, name := range []string{"rt_basic.cu", "rt_memory.cu", "rt_pool.cu", "rt_threads.cu", "rt_graph.cu"} {
			if out := g.runCUDA(t, name); !strings.HasSuffix(out, "right\n") {
				t.Errorf("%s printed %q", name, out)
			}
		}
	})
}

// TestLazily runs programs whose guests' limits are together more than a GPU's memory. None has a GPU
// before its first launch. The first run asks for its guest's whole limit, and shows what the program
// needs, so that the next two run at the same time.
func TestLazily(t *testing.T) {
	h := host.StartGPUs(t, 1, "none")
	cache := "XDG_CACHE_HOME=" + t.TempDir()
	a := guestOf(t, h, api.VMSpec{Name: "a", Float: true, MemoryLimitBytes: 700 << 20})
	b := guestOf(t, h, api.VMSpec{Name: "b", Float: true, MemoryLimitBytes: 700 << 20})
	tasks := func() []api.Task {
		t.Helper()
		all, err := h.Client.Tasks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all.Tasks
	}
	run := func(g *guest) *running {
		t.Helper()
		r := g.startWith(t, "lazily.c", []string{"300"}, cache)
		r.line("recorded")
		return r
	}
	first := run(a)
	h.Until("the context for questions to end", func() error {
		if all := tasks(); len(all) != 0 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	first.launch()
	first.line("launched")
	if all := tasks(); len(all) != 1 || all[0].MemoryBytes != 700<<20 {
		t.Errorf("tasks of a program that was not seen before: %+v", all)
	}
	first.end()
	var both []*running
	for _, g := range []*guest{a, b} {
		r := run(g)
		r.launch()
		r.line("launched")
		both = append(both, r)
	}
	all := tasks()
	if len(all) != 2 {
		t.Fatalf("tasks: %+v", all)
	}
	for _, x := range all {
		if x.State != api.TaskPlaced || x.MemoryBytes < 300<<20 || x.MemoryBytes > 350<<20 || x.Blocks != 4 || x.Threads != 256 {
			t.Errorf("a program that needs 300 MiB: %+v", x)
		}
	}
	for _, r := range both {
		r.end()
	}
	// With another argument it is not known.
	other := b.startWith(t, "lazily.c", []string{"more", "100"}, cache)
	other.line("recorded")
	other.launch()
	other.line("launched")
	if all := tasks(); len(all) != 1 || all[0].MemoryBytes != 700<<20 {
		t.Errorf("tasks of a program with other arguments: %+v", all)
	}
	other.end()
}
