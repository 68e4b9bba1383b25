package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// rush is how urgent kernels come.
type rush struct {
	length time.Duration
	pauses bool // else each comes when the one before has ended
	// leaves is whether the batch guest's kernel goes in persistent blocks, which leave
	// the soonest, also where the tuner finds that they cost too much. It is measured
	// under hpf only.
	leaves bool
}

// rushes are those that are measured, by the urgent kernel's length (FLEP figure 8).
var rushes = [...]rush{
	{length: 10 * time.Microsecond},
	goalRush:  {length: 100 * time.Microsecond},
	pauseRush: {length: 100 * time.Microsecond, pauses: true},
	leaveRush: {length: 100 * time.Microsecond, pauses: true, leaves: true},
	{length: time.Millisecond},
	{length: 10 * time.Millisecond},
}

const (
	// goalRush is the one that goals are about: back to back, as the notes' baselines.
	goalRush = 1
	// pauseRush is the same but that the GPU has to be taken from the batch guest in
	// mid-kernel.
	pauseRush             = 2
	leastPause, mostPause = time.Millisecond, 5 * time.Millisecond
	// leaveRush is that where the batch guest's kernel leaves as soon as it can.
	leaveRush = 3
)

// soonest is the form whose blocks leave the soonest.
var soonest = &tenant.Form{Form: uint8(abi.PreemptPersistent), Group: 1, Every: 1}

// String names it in the table.
func (r rush) String() string {
	name := r.length.String()
	if r.pauses {
		name = fmt.Sprintf("%s, after pauses of %v to %v", name, leastPause, mostPause)
	}
	if r.leaves {
		name += ", beside persistent blocks"
	}
	return name
}

// batchLength is how long a batch kernel is, and batchTask how long each of its
// blocks.
const (
	batchLength = 20 * time.Millisecond
	batchTask   = 20 * time.Microsecond
	// batchLeaves is within what time its guest wants it to leave.
	batchLeaves = 60 * time.Microsecond
	// batchDepth is how many of its kernels are queued.
	batchDepth = 4
)

// urgent measures what an urgent guest has of its priority beside a batch guest with
// long kernels.
func urgent(ctx context.Context, b *bench) error {
	u := &contest{bench: b, rushes: rushes[:pick(b, leaveRush+1, len(rushes), len(rushes))], medians: make(map[string][][]float64)}
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

// manyBlocks is a kernel of batchLength with blocks that take the time of so many
// iterations with all threads of an SM at it.
func (b *bench) manyBlocks(iterations int) tenant.Spin {
	s := b.full(iterations)
	s.Blocks *= int(batchLength / batchTask)
	return s
}

// hpfWorld is the one that goals are about.
const hpfWorld = "guest, hpf"

// contest is an urgent program beside a batch one, in several worlds.
type contest struct {
	*bench
	rushes     []rush
	iterations []int // of their kernels
	batch      tenant.Spin
	medians    map[string][][]float64 // µs, by world, rush and run
	form       *tenant.Form           // of the batch guest's kernels
	without    error                  // why there is no MPS
}

// guests runs it with guests: the urgent one alone, under no policy, and with
// evictions.
func (u *contest) guests(ctx context.Context) error {
	all, err := u.open(ctx, seat{setup: tenant.Setup{Name: "batch", Preempt: true, Leaves: batchLeaves}},
		seat{api.VMSpec{PriorityCeiling: api.MaxPriority}, tenant.Setup{Name: "urgent", Priority: -10, Looks: looks}})
	if err != nil {
		return err
	}
	batch, rush := all[0], all[1]
	long, form, err := u.tuned(ctx, batch, tenant.Job{Spin: &u.batch})
	if err != nil {
		return err
	}
	u.form = form
	jobs, err := u.jobs(ctx, rush)
	if err != nil {
		return err
	}
	err = u.repeat(guestsPart, func(run int) error {
		for _, w := range []struct{ world, policy string }{{"guest alone", "hpf"}, {"guest, no policy", "none"}, {hpfWorld, "hpf"}} {
			if err := u.setPolicy(ctx, w.policy); err != nil {
				return err
			}
			beside := batch
			if w.world == "guest alone" {
				beside = nil
			}
			if err := u.bout(ctx, w.world, run, beside, long, rush, jobs); err != nil {
				return fmt.Errorf("%s: %w", w.world, err)
			}
		}
		return nil
	})
	return errors.Join(err, u.leave(ctx, all...))
}

func (u *contest) jobs(ctx context.Context, m *member) (jobs []int, err error) {
	for _, n := range u.iterations {
		s := u.full(n)
		j, err := m.load(ctx, tenant.Job{Spin: &s})
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// guestsPart and nativesPart are by when, as a part of the time that there is in all,
// guests are to be done, and natives under default time slicing.
const guestsPart, nativesPart = 0.5, 0.8

// bout has the urgent program work in each way, beside the batch one unless that is
// nil. Other lengths than the goals' are measured in the first run only.
func (u *contest) bout(ctx context.Context, world string, run int, batch *member, long int, rush *member, jobs []int) error {
	if u.medians[world] == nil {
		u.medians[world] = make([][]float64, len(jobs))
	}
	const warm = 150 * time.Millisecond
	window := pick(u.bench, 100*time.Millisecond, 400*time.Millisecond, 800*time.Millisecond)
	for i, j := range jobs {
		r := u.rushes[i]
		if run > 0 && i != goalRush && !r.pauses || r.leaves && world != hpfWorld {
			continue
		}
		tasks := []task{{rush, tenant.Run{Job: j, At: int64(warm), For: window}}}
		if r.pauses {
			tasks[0].run.Pause, tasks[0].run.Jitter = leastPause, mostPause-leastPause
		}
		if batch != nil {
			beside := tenant.Run{Job: long, For: window + 2*warm, Depth: batchDepth, Rounds: endless}
			if r.leaves {
				beside.As = soonest
			}
			tasks = append(tasks, task{batch, beside})
		}
		rans, err := together(ctx, tasks...)
		if err != nil {
			return err
		}
		us := figure.Micros(rans[0].Turnarounds)
		u.medians[world][i] = append(u.medians[world][i], figure.Median(us))
	}
	return nil
}

// natives runs it with programs of the host, under the driver's default time slicing
// or what env says.
func (u *contest) natives(ctx context.Context, world string, env ...string) error {
	batch, err := u.native(ctx, "native-batch", env...)
	if err != nil {
		return err
	}
	rush, err := u.native(ctx, "native-urgent", env...)
	if err != nil {
		return err
	}
	long, err := batch.load(ctx, tenant.Job{Spin: &u.batch})
	if err != nil {
		return err
	}
	jobs, err := u.jobs(ctx, rush)
	if err != nil {
		return err
	}
	part := nativesPart
	if len(env) > 0 {
		part = 1
	}
	err = u.repeat(part, func(run int) error {
		if err := u.bout(ctx, world, run, batch, long, rush, jobs); err != nil || len(env) > 0 {
			return err
		}
		return u.bout(ctx, world+", alone", run, nil, long, rush, jobs)
	})
	return errors.Join(err, u.leave(ctx, batch, rush))
}

// mps runs it under NVIDIA's MPS, with a control daemon of its own, where there is
// the program.
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
		const patience = 15 * time.Second
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, control, args...)
		cmd.Env = append(os.Environ(), env...)
		if in != "" {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			defer r.Close() //nolint:errcheck // the command has its own
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

// report makes the rows.
func (u *contest) report() {
	of := func(world string, i int) []float64 {
		if len(u.medians[world]) <= i {
			return nil
		}
		return u.medians[world][i]
	}
	table := detail("alone", "guest alone", "hpf", "no policy", "default slicing", "MPS", "speed-up over default", "over MPS")
	for i, r := range u.rushes {
		hpf, slices, mps := figure.Median(of(hpfWorld, i)), figure.Median(of("default", i)), figure.Median(of("MPS", i))
		table.Add(r.String(), figure.Median(of("default, alone", i)), figure.Median(of("guest alone", i)), hpf,
			figure.Median(of("guest, no policy", i)), slices, mps, slices/hpf, mps/hpf)
	}
	ours := of(hpfWorld, goalRush)
	by := func(f func(ours, other float64) float64, other []float64) (out []float64) {
		for i := range min(len(ours), len(other)) {
			out = append(out, f(ours[i], other[i]))
		}
		return out
	}
	less := func(a, b float64) float64 { return a - b }
	over := func(a, b float64) float64 { return b / a }
	// base notes a baseline, and what it is where kernels come after pauses.
	base := func(r *report.Row, name, world string) {
		r.Baseline[name], r.Baseline[name+"_after_pauses"] = figure.Median(of(world, goalRush)), figure.Median(of(world, pauseRush))
	}
	how := fmt.Sprintf("an urgent guest's kernel of 100 µs, again and again, each waited for, beside a guest's kernels of 20 ms in blocks of 20 µs, which go in form %d, group %d; nobody sleeps who waits for launches (spin: true); medians. The GPU waits for who launches again and again; for kernels after pauses of %v to %v, also shown, it is taken from the other guest in mid-kernel; once more with that in persistent blocks, which leave sooner, and cost it 5 to 7 %%, more than the tuner accepts. The page's table has other lengths, in µs",
		u.form.Form, u.form.Group, leastPause, mostPause)
	added := u.row("urgent_added_us", by(less, of("guest alone", goalRush)), how)
	base(&added, "guest_alone_us", "guest alone")
	base(&added, "guest_hpf_us", hpfWorld)
	added.Baseline["guest_hpf_us_after_pauses_persistent"] = figure.Median(of(hpfWorld, leaveRush))
	added.Detail = table
	byDefault := u.row("urgent_speedup_default", by(over, of("default", goalRush)), how+". Baseline: two programs of the host")
	base(&byDefault, "default_us", "default")
	base(&byDefault, "native_alone_us", "default, alone")
	base(&byDefault, "guest_no_policy_us", "guest, no policy")
	u.add(added, byDefault)
	if u.without == nil {
		byMPS := u.row("urgent_speedup_mps", by(over, of("MPS", goalRush)), how+". Baseline: two programs of the host under MPS")
		base(&byMPS, "mps_us", "MPS")
		u.add(byMPS)
		return
	}
	var against []float64
	for _, o := range ours {
		against = append(against, notedMPS/o)
	}
	byMPS := u.row("urgent_speedup_mps", against, how+fmt.Sprintf(". Baseline: not this run's, since there was no MPS (%v), but the notes' of the same model of GPU", u.without))
	byMPS.Baseline["mps_us_by_notes"] = notedMPS
	u.add(byMPS)
}

// notedMPS is what a kernel of 100 µs beside 20 ms kernels took under MPS on an H100,
// in µs (docs/results/preemption-on-h100.md).
const notedMPS = 20_101
