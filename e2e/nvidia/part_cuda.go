package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/guestagent/cuda"
	"vgpud/mediator/api"
)

// cudaPrograms has unmodified CUDA programs use a guest's virtual GPU through the libraries that
// tenants load. The programs that check the API (e2e/cuda) must end well. Whole programs (apps) that
// NVIDIA's compiler built for its shared runtime must print what they print on the machine's own
// driver, and take about as long.
func cudaPrograms(ctx context.Context, b *bench) error {
	spec := api.VMSpec{Name: "programs"}
	if b.kind != "soft" { // which has less memory
		spec.MemoryLimitBytes = programsMemory
	}
	v, err := b.client.CreateVM(ctx, spec)
	if err != nil {
		return err
	}
	b.guests = append(b.guests, v.Name)
	c := &cudaTenant{bench: b, dir: b.program("cuda"), socket: v.Socket}
	err = errors.Join(c.checks(ctx), c.launchCall(ctx))
	if b.kind == "soft" {
		return err // which has no driver of its own to compare with
	}
	return errors.Join(err, c.begins(ctx), c.whole(ctx))
}

// cudaTenant runs CUDA programs on a guest's virtual GPU, and on the machine's own driver.
type cudaTenant struct {
	*bench
	dir    string // with the libraries in lib, programs that check the API in checks, and the sources of apps
	socket string
	own    []string // environment of programs that use the machine's own driver
}

// programsMemory is the limit of the guest's GPU memory. Where a guest has one, its executors make
// contexts ahead (docs/operations.md, Spare executors).
const programsMemory = 16 << 30

// programLimit bounds the time of one program.
const programLimit = time.Minute

// ran is what a program did.
type ran struct {
	took time.Duration
	out  string
	err  error
}

// run runs a program on the virtual GPU, or on the machine's own driver.
func (c *cudaTenant) run(ctx context.Context, guest bool, program string, args ...string) ran {
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), c.own...)
	if guest {
		cmd.Env = append(os.Environ(), cuda.SocketVariable+"="+c.socket, "LD_LIBRARY_PATH="+filepath.Join(c.dir, "lib"))
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	begin := time.Now()
	err := cmd.Run()
	r := ran{took: time.Since(begin), out: out.String(), err: err}
	if err != nil {
		r.err = fmt.Errorf("%w: %s", err, first(errors.New(strings.TrimSpace(errs.String()+"\n"+out.String()))))
	}
	return r
}

// checks runs the programs that check the API.
func (c *cudaTenant) checks(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Join(c.dir, "checks"))
	if errors.Is(err, fs.ErrNotExist) {
		c.say("no CUDA programs in %s: bundle.sh puts them there where it has the compilers", c.dir)
		return nil
	}
	if err != nil {
		return err
	}
	table := detail("in a guest, s", "ended well", "on the machine's own driver")
	var failed []string
	for _, e := range entries {
		program := filepath.Join(c.dir, "checks", e.Name())
		r := c.run(ctx, true, program)
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.err != nil {
			failed = append(failed, e.Name())
			c.say("%s: %v", e.Name(), r.err)
		}
		native := -1.0
		if c.kind != "soft" {
			native = asNumber(c.run(ctx, false, program).err == nil)
		}
		table.Add(e.Name(), r.took.Seconds(), asNumber(r.err == nil), native)
	}
	how := fmt.Sprintf("%d programs of e2e/cuda/testdata, which check the driver API and the runtime against the CPU, in a guest, through vgpud's own libraries", len(entries))
	if len(failed) > 0 {
		how += "; failed: " + strings.Join(failed, ", ")
	}
	r := c.row("cuda_programs_failed", []float64{float64(len(failed))}, how+". 1: it ended well, 0: it didn't, -1: not run. On the machine's own driver some are not meant to: they check what only a virtual GPU is or refuses")
	r.Baseline["programs"] = float64(len(entries))
	r.Detail = table
	c.add(r)
	return nil
}

// asNumber returns 1 for true.
func asNumber(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

// launchCall measures a call of cuLaunchKernel.
func (c *cudaTenant) launchCall(ctx context.Context) error {
	program := filepath.Join(c.dir, "launchtime")
	if _, err := os.Stat(program); err != nil {
		return nil // checks has said so
	}
	measure := func(guest bool) (us float64, err error) {
		var wall, cpu float64
		r := c.run(ctx, guest, program, fmt.Sprint(pick(c.bench, 2, 20, 50)))
		if r.err != nil {
			return 0, r.err
		}
		if _, err := fmt.Sscan(r.out, &wall, &cpu); err != nil {
			return 0, fmt.Errorf("%s printed %q: %w", program, r.out, err)
		}
		return wall / float64(time.Microsecond), nil
	}
	var guests, natives []float64
	for range c.runs() {
		us, err := measure(true)
		if err != nil {
			return err
		}
		guests = append(guests, us)
		if c.kind == "soft" {
			continue
		}
		if us, err = measure(false); err != nil {
			return err
		}
		natives = append(natives, us)
	}
	r := c.row("cuda_launch_call_us", guests, "a call of cuLaunchKernel by a C program in a guest, over 1,000 calls that are not waited for, the best of 50 rounds")
	r.Baseline["programs_runs"] = float64(len(guests))
	if len(natives) > 0 {
		r.Baseline["native_us"] = figure.Median(natives)
	}
	c.add(r)
	return nil
}

// begins measures how long contexts of a program take to begin after the first.
func (c *cudaTenant) begins(ctx context.Context) error {
	program := filepath.Join(c.dir, "begins")
	if _, err := os.Stat(program); err != nil {
		return nil // checks has said so
	}
	var took [2][]float64 // ms, by the machine's own driver and in a guest
	var ratios []float64
	for range c.runs() {
		for i, guest := range []bool{false, true} {
			r := c.run(ctx, guest, program, "3", "600")
			if r.err != nil {
				return r.err
			}
			var ms float64
			if _, err := fmt.Sscan(r.out, &ms); err != nil {
				return fmt.Errorf("%s printed %q: %w", program, r.out, err)
			}
			took[i] = append(took[i], ms)
		}
		n := len(took[0]) - 1
		ratios = append(ratios, took[1][n]/took[0][n])
	}
	r := c.row("cuda_begin_ratio", ratios, "a C program's contexts after its first, with pauses of 0.6 s while one is there and after it, from the call that makes one until 1 MiB that it allocated is set: medians of 3, in a guest over natively. The guest has a limit of 16 GiB of GPU memory, so that its executors make contexts ahead")
	r.Baseline["native_ms"], r.Baseline["guest_ms"] = figure.Median(took[0]), figure.Median(took[1])
	c.add(r)
	return nil
}

// apps are the whole programs of apps/apps.cu.
var apps = []string{"addition", "matrices", "pipeline", "bodies", "heat", "histogram", "requests", "launches"}

// nvcc returns NVIDIA's compiler of this machine.
func nvcc() (string, error) {
	if path, err := exec.LookPath("nvcc"); err == nil {
		return filepath.EvalSymlinks(path)
	}
	return exec.LookPath("/usr/local/cuda/bin/nvcc")
}

// build compiles apps with NVIDIA's compiler, for its shared runtime.
func (c *cudaTenant) build(ctx context.Context) (program string, err error) {
	compiler, err := nvcc()
	if err != nil {
		return "", err
	}
	c.own = []string{"LD_LIBRARY_PATH=" + filepath.Join(filepath.Dir(filepath.Dir(compiler)), "lib64") + ":" + os.Getenv("LD_LIBRARY_PATH")}
	program = filepath.Join(c.testbed.dir, "apps")
	const limit = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, compiler, "-O2", "-std=c++17", "-cudart", "shared", "-gencode", "arch=compute_80,code=compute_80", "-o", program, filepath.Join(c.dir, "apps.cu"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd, err, out)
	}
	return program, nil
}

// whole runs whole programs in a guest and on the machine's own driver, in turns.
func (c *cudaTenant) whole(ctx context.Context) error {
	program, err := c.build(ctx)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		c.say("whole programs are not measured: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	times := make(map[string]*[2][]float64) // s, by the machine's own driver and in a guest
	var wrong []string
	var runs []float64
	once := func(name string, guest bool) (ran, error) {
		r := c.run(ctx, guest, program, name, fmt.Sprint(pick(c.bench, 1, 100, 200)))
		if r.err != nil {
			return r, fmt.Errorf("%s, in a guest %v: %w", name, guest, r.err)
		}
		return r, nil
	}
	for _, name := range apps { // the driver's compiler keeps what it made
		times[name] = new([2][]float64)
		for _, guest := range []bool{false, true} {
			if _, err := once(name, guest); err != nil {
				return err
			}
		}
	}
	err = c.repeat(1, func(run int) error {
		var ratios []float64
		for _, name := range apps {
			var r [2]ran
			order := []int{0, 1}
			if run%2 == 1 {
				slices.Reverse(order)
			}
			for _, i := range order {
				var err error
				if r[i], err = once(name, i == 1); err != nil {
					return err
				}
				times[name][i] = append(times[name][i], r[i].took.Seconds())
			}
			if r[0].out != r[1].out && !slices.Contains(wrong, name) {
				wrong = append(wrong, name)
				c.say("%s: in a guest %q, by the machine's own driver %q", name, r[1].out, r[0].out)
			}
			ratios = append(ratios, r[1].took.Seconds()/r[0].took.Seconds())
		}
		runs = append(runs, figure.GeoMean(ratios))
		return nil
	})
	if err != nil {
		return err
	}
	table := detail("native, s", "in a guest, s", "ratio")
	for _, name := range apps {
		n, g := figure.Median(times[name][0]), figure.Median(times[name][1])
		table.Add(name, n, g, g/n)
	}
	r := c.row("cuda_whole_ratio", runs, fmt.Sprintf("%d whole programs (e2e/nvidia/apps), from their start to their end, built by nvcc for its shared runtime: in a guest with vgpud's runtime and driver libraries, where their kernels become preemptible, over those on the machine's own; geometric mean. The guest has a limit of 16 GiB of GPU memory. Outputs differ of %d", len(apps), len(wrong)))
	r.Baseline["different_outputs"] = float64(len(wrong))
	r.Detail = table
	if len(wrong) > 0 {
		r.Met, r.Why = false, "outputs differ: "+strings.Join(wrong, ", ")
	}
	c.add(r)
	return nil
}
