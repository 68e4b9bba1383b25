package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
)

// rush describes how urgent kernels arrive.
type rush struct {
	length time.Duration
	pauses bool // pauses precede the kernels; otherwise each arrives when the previous one has ended
}

// rushes are the arrivals that are measured, by the urgent kernel's length (FLEP figure 8).
var rushes = [...]rush{
	{length: 10 * time.Microsecond},
	backToBack: {length: 100 * time.Microsecond},
	pauseRush:  {length: 100 * time.Microsecond, pauses: true},
	{length: time.Millisecond},
	{length: 10 * time.Millisecond},
}

const (
	// pauseRush is the index of the arrivals that have goals: the batch guest must be evicted in
	// mid-kernel.
	pauseRush             = 2
	leastPause, mostPause = time.Millisecond, 5 * time.Millisecond
	// backToBack is the same without pauses; the daemon keeps the GPU free for it.
	backToBack = 1
)

// String returns the name in the table.
func (r rush) String() string {
	name := r.length.String()
	if r.pauses {
		name = fmt.Sprintf("%s, after pauses of %v to %v", name, leastPause, mostPause)
	}
	return name
}

// batchLength is the duration of a batch kernel, and batchTask that of each of its blocks.
const (
	batchLength = 20 * time.Millisecond
	batchTask   = 20 * time.Microsecond
	// batchDepth is the number of batch kernels queued.
	batchDepth = 4
)

// urgent measures how much an urgent guest gains from its priority beside a batch guest with long
// kernels.
func urgent(ctx context.Context, b *bench) error {
	u := &contest{bench: b, rushes: rushes[:pick(b, pauseRush+1, len(rushes), len(rushes))], medians: make(map[string][][]float64), kept: make(map[string][][]float64)}
	times := []time.Duration{batchTask}
	for _, r := range u.rushes {
		times = append(times, r.length)
	}
	scaled, err := b.scale(ctx, times...)
	if err != nil {
		return err
	}
	u.batch, u.iterations = b.manyBlocks(scaled.iterations[0]), scaled.iterations[1:]
	if err := u.guests(ctx); err != nil {
		return err
	}
	if err := u.natives(ctx, "default"); err != nil {
		return fmt.Errorf("native: %w", err)
	}
	if err := u.mps(ctx); err != nil {
		b.say("MPS: %v", err)
		u.without = err
	}
	u.report()
	return nil
}

// manyBlocks returns a kernel of batchLength. Its blocks take the time of the given number of
// iterations when all threads of an SM work.
func (b *bench) manyBlocks(iterations int) tenant.Spin {
	s := b.full(iterations)
	s.Blocks *= int(batchLength / batchTask)
	return s
}

// hpfWorld is the world that has goals.
const hpfWorld = "guest, hpf"

// contest is an urgent program beside a batch one, in several worlds.
type contest struct {
	*bench
	rushes     []rush
	iterations []int // of their kernels
	batch      tenant.Spin
	medians    map[string][][]float64 // µs, by world, rush and run
	kept       map[string][][]float64 // parts of the batch program's throughput alone, likewise
	form       *tenant.Form           // of the batch guest's kernels
	without    error                  // why MPS is not available
}

// pair is the two programs with their jobs.
type pair struct {
	batch, rush *member
	long        int   // the batch program's job
	short       []int // the urgent program's jobs, by rush
	// alone is the duration of one of the batch program's kernels alone.
	alone time.Duration
}

// guests runs the contest with guests: the urgent one alone, under no policy, and with evictions.
func (u *contest) guests(ctx context.Context) error {
	all, err := u.open(ctx, seat{setup: tenant.Setup{Name: "batch", Preempt: true}},
		seat{api.VMSpec{PriorityCeiling: api.MaxPriority}, tenant.Setup{Name: "urgent", Priority: -10}})
	if err != nil {
		return err
	}
	p := &pair{batch: all[0], rush: all[1]}
	// The batch guest's driver chooses the form by what the urgent guest wants.
	if err := u.setPolicy(ctx, "hpf"); err != nil {
		return err
	}
	if p.long, u.form, err = u.tuned(ctx, p.batch, tenant.Job{Spin: &u.batch}); err != nil {
		return err
	}
	if err := u.prepare(ctx, p); err != nil {
		return err
	}
	err = u.repeat(guestsPart, func(run int) error {
		for _, w := range []struct{ world, policy string }{{"guest alone", "hpf"}, {"guest, no policy", "none"}, {hpfWorld, "hpf"}} {
			if err := u.setPolicy(ctx, w.policy); err != nil {
				return err
			}
			if err := u.bout(ctx, w.world, run, p, w.world == "guest alone"); err != nil {
				return fmt.Errorf("%s: %w", w.world, err)
			}
		}
		return nil
	})
	return errors.Join(err, u.leave(ctx, all...))
}

// prepare loads the urgent program's jobs, and measures the batch program alone.
func (u *contest) prepare(ctx context.Context, p *pair) error {
	for _, n := range u.iterations {
		s := u.full(n)
		j, err := p.rush.load(ctx, tenant.Job{Spin: &s})
		if err != nil {
			return err
		}
		p.short = append(p.short, j)
	}
	ran, err := p.batch.run(ctx, tenant.Run{Job: p.long, Warm: urgentWarm, For: u.urgentWindow() / 2, Depth: batchDepth, Rounds: endless})
	if err != nil {
		return err
	}
	p.alone = turnaround(ran, 1)
	return nil
}

// kept returns the part of its throughput alone that a program has, if a launch takes alone without
// the other program. It uses the window, not the time from end to end: a program that is held back
// all the time may have had a launch end at the beginning.
func kept(ran *tenant.Ran, alone time.Duration) float64 {
	if alone == 0 {
		return math.NaN()
	}
	return float64(ran.Launches) * float64(alone) / float64(ran.Window)
}

// guestsPart and nativesPart are deadlines, as parts of the total time: for guests, and for native
// programs under default time slicing.
const guestsPart, nativesPart = 0.5, 0.8

// urgentWarm is how long the batch program works before the urgent one begins, and after the urgent
// one ends.
const urgentWarm = 150 * time.Millisecond

// urgentWindow returns how long the urgent program works.
func (u *contest) urgentWindow() time.Duration {
	return pick(u.bench, 100*time.Millisecond, 400*time.Millisecond, 800*time.Millisecond)
}

// bout runs the urgent program in each way, beside the batch program unless alone is set. Kernel
// lengths without goals are measured in the first run only.
func (u *contest) bout(ctx context.Context, world string, run int, p *pair, alone bool) error {
	if u.medians[world] == nil {
		u.medians[world], u.kept[world] = make([][]float64, len(p.short)), make([][]float64, len(p.short))
	}
	window := u.urgentWindow()
	for i, j := range p.short {
		r := u.rushes[i]
		if run > 0 && i != backToBack && i != pauseRush {
			continue
		}
		tasks := []task{{p.rush, tenant.Run{Job: j, At: int64(urgentWarm), For: window}}}
		if r.pauses {
			tasks[0].run.Pause, tasks[0].run.Jitter = leastPause, mostPause-leastPause
		}
		if !alone {
			tasks = append(tasks, task{p.batch, tenant.Run{Job: p.long, Warm: urgentWarm, For: window, After: urgentWarm, Depth: batchDepth, Rounds: endless}})
		}
		rans, err := together(ctx, tasks...)
		if err != nil {
			return err
		}
		us := figure.Micros(rans[0].Turnarounds)
		u.medians[world][i] = append(u.medians[world][i], figure.Median(us))
		if !alone {
			u.kept[world][i] = append(u.kept[world][i], kept(rans[1], p.alone))
		}
	}
	return nil
}

// natives runs the contest with programs of the host, under the driver's default time slicing or as
// env configures.
func (u *contest) natives(ctx context.Context, world string, env ...string) error {
	batch, err := u.native(ctx, "native-batch", env...)
	if err != nil {
		return err
	}
	rush, err := u.native(ctx, "native-urgent", env...)
	if err != nil {
		return err
	}
	p := &pair{batch: batch, rush: rush}
	if p.long, err = batch.load(ctx, tenant.Job{Spin: &u.batch}); err != nil {
		return err
	}
	if err := u.prepare(ctx, p); err != nil {
		return err
	}
	part := nativesPart
	if len(env) > 0 {
		part = 1
	}
	err = u.repeat(part, func(run int) error {
		if err := u.bout(ctx, world, run, p, false); err != nil || len(env) > 0 {
			return err
		}
		return u.bout(ctx, world+", alone", run, p, true)
	})
	return errors.Join(err, u.leave(ctx, batch, rush))
}

// mps runs the contest under NVIDIA's MPS with a control daemon of its own, if the program exists.
func (u *contest) mps(ctx context.Context) (err error) {
	if u.kind == "soft" {
		return errors.New("a GPU in software has none")
	}
	control, err := exec.LookPath("nvidia-cuda-mps-control")
	if err != nil {
		return fmt.Errorf("not measured: %w", err)
	}
	pipes, logs := filepath.Join(u.dir, "mps"), filepath.Join(u.dir, "mps-log")
	if err := errors.Join(os.Mkdir(pipes, 0o755), os.Mkdir(logs, 0o755)); err != nil {
		return err
	}
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + pipes, "CUDA_MPS_LOG_DIRECTORY=" + logs}
	command := func(in string, args ...string) error {
		const timeout = 15 * time.Second
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, control, args...)
		cmd.Env = append(os.Environ(), env...)
		if in != "" {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			defer r.Close() //nolint:errcheck // the command has its own copy
			cmd.Stdin = r
			if _, err := w.WriteString(in); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
		}
		return cmd.Run()
	}
	if err := command("", "-d"); err != nil {
		return fmt.Errorf("start MPS: %w", err)
	}
	defer func() { err = errors.Join(err, command("quit\n")) }()
	return u.natives(ctx, "MPS", env...)
}

// runsOf returns the measurements of a rush in a world.
func runsOf(measured map[string][][]float64, world string, rush int) []float64 {
	if len(measured[world]) <= rush {
		return nil
	}
	return measured[world][rush]
}

// table describes both programs, in each world and for each rush.
func (u *contest) table() *report.Table {
	table := detail("alone", "guest alone", "hpf", "no policy", "default slicing", "MPS", "speed-up over default", "over MPS",
		"batch: hpf", "batch: no policy", "batch: default slicing", "batch: MPS")
	for i, r := range u.rushes {
		us := func(world string) float64 { return figure.Median(runsOf(u.medians, world, i)) }
		kept := func(world string) float64 { return figure.Median(runsOf(u.kept, world, i)) }
		table.Add(r.String(), us("default, alone"), us("guest alone"), us(hpfWorld), us("guest, no policy"), us("default"), us("MPS"),
			us("default")/us(hpfWorld), us("MPS")/us(hpfWorld),
			kept(hpfWorld), kept("guest, no policy"), kept("default"), kept("MPS"))
	}
	return table
}

// report makes the rows: first of kernels after pauses, then of kernels back to back.
func (u *contest) report() {
	u.reportOf(pauseRush, "")
	u.reportOf(backToBack, "back_to_back_")
}

// reportOf makes the rows of a rush. infix goes between urgent_ and the rest of each name.
func (u *contest) reportOf(i int, infix string) {
	of := func(world string) []float64 { return runsOf(u.medians, world, i) }
	ours := of(hpfWorld)
	by := func(f func(ours, other float64) float64, other []float64) (out []float64) {
		for i := range min(len(ours), len(other)) {
			out = append(out, f(ours[i], other[i]))
		}
		return out
	}
	less := func(a, b float64) float64 { return a - b }
	over := func(a, b float64) float64 { return b / a }
	how := fmt.Sprintf("an urgent guest's kernel of %v, again and again, each waited for, beside a guest's kernels of 20 ms in blocks of 20 µs, which go in form %d, group %d, as its tuner chooses; nothing is configured but the policy and the priorities; medians", u.rushes[i], u.form.Form, u.form.Group)
	added := u.row("urgent_"+infix+"added_us", by(less, of("guest alone")), how+fmt.Sprintf(". The page's table has other lengths, in µs, and what the batch guest or program has meanwhile: its kernels that ended while the urgent one worked, of as many as it ends alone, to a kernel of %d", u.urgentWindow()/batchLength))
	for name, world := range map[string]string{"guest_alone_us": "guest alone", "guest_hpf_us": hpfWorld, "guest_no_policy_us": "guest, no policy", "native_alone_us": "default, alone"} {
		added.Baseline[name] = figure.Median(of(world))
	}
	if infix == "" {
		added.Detail = u.table()
	}
	byDefault := u.row("urgent_"+infix+"speedup_default", by(over, of("default")), how+". Baseline: two programs of the host")
	byDefault.Baseline["default_us"] = figure.Median(of("default"))
	kept := u.row("urgent_"+infix+"batch_kept", runsOf(u.kept, hpfWorld, i), how+". What the batch guest keeps of its throughput alone")
	kept.Baseline["no_policy"], kept.Baseline["default_slicing"] = figure.Median(runsOf(u.kept, "guest, no policy", i)), figure.Median(runsOf(u.kept, "default", i))
	u.add(added, byDefault, kept)
	if u.without == nil {
		byMPS := u.row("urgent_"+infix+"speedup_mps", by(over, of("MPS")), how+". Baseline: two programs of the host under MPS")
		byMPS.Baseline["mps_us"] = figure.Median(of("MPS"))
		u.add(byMPS)
		return
	}
	var against []float64
	for _, o := range ours {
		against = append(against, measuredMPS/o)
	}
	byMPS := u.row("urgent_"+infix+"speedup_mps", against, how+fmt.Sprintf(". Baseline: not this run's, since there was no MPS (%v), but one measured before on the same model of GPU (docs/nvidia.md)", u.without))
	byMPS.Baseline["mps_us_measured_before"] = measuredMPS
	u.add(byMPS)
}

// measuredMPS is how long a kernel of 100 µs took beside 20 ms kernels under MPS, as measured
// before on an H100, in µs (docs/nvidia.md).
const measuredMPS = 20_101
