package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"vgpud/cmd/vgpud/workload"
	"vgpud/gpu/corpus"
	"vgpud/mediator/api"
)

// lengths are the lengths of the guests' kernels, whatever the GPU's speed. Each guest has kernels
// of one length, so that their number tells its part of the GPU: hardware keeps no account to
// compare accounting with.
type lengths struct {
	guests [3]time.Duration // of the demo's guests, in order
	batch  time.Duration
	// batchBlocks is the batch kernel's number of blocks: many more than the GPU holds, so that the
	// kernel can leave between two.
	batchBlocks int
	urgent      time.Duration
	// few and many are the iterations of a kernel's loop that are timed to find how long one
	// iteration takes.
	few, many int
}

// lengths returns the lengths for this run. A guest whose instructions QEMU translates launches
// fewer kernels a second.
func (o *Options) lengths() lengths {
	const ms, µs = time.Millisecond, time.Microsecond
	switch {
	case o.GPU == Soft:
		return lengths{[3]time.Duration{12 * ms, 6 * ms, 3 * ms}, 30 * ms, 192, 300 * µs, 20, 120}
	case o.VMs:
		return lengths{[3]time.Duration{10 * ms, 5 * ms, 2 * ms}, 20 * ms, 1 << 14, 200 * µs, 2000, 20000}
	}
	return lengths{[3]time.Duration{2 * ms, 500 * µs, 100 * µs}, 20 * ms, 1 << 16, 100 * µs, 2000, 20000}
}

// gpuTimePerCheck is roughly the GPU time of the kernels that a guest's worker launches between two
// checks of their results.
const gpuTimePerCheck = 8 * time.Millisecond

// calibrate times the kernels of all guests alone on the GPU, sets their lengths, and stores what
// the kernels of the first guests then take.
func (d *demo) calibrate(ctx context.Context) error {
	want := d.o.lengths()
	kernel := workload.Work{Kernel: "throttle", Throttle: &corpus.ThrottleConfig{Blocks: 8, Threads: 32}}
	batch := workload.Batch().Work[0]
	batch.Throttle.Blocks = want.batchBlocks
	urgent := workload.Urgent().Work[0]

	// The batch kernel comes first: a GPU that was idle is slow for a while. The batch kernel
	// first: a GPU that was idle is slow for a while.
	var timed []workload.Work
	for _, w := range []workload.Work{batch, kernel, urgent} {
		timed = append(timed, iterated(w, want.few), iterated(w, want.many))
	}
	found, err := d.solo(ctx, timed)
	if err != nil {
		return err
	}
	line := func(shape int) speed {
		return speedOf(want.few, found[2*shape], want.many, found[2*shape+1])
	}
	batch = iterated(batch, line(0).iterations(want.batch))
	urgent = iterated(urgent, line(2).iterations(want.urgent))
	final := []workload.Work{batch, urgent}
	for i, m := range d.guests {
		w := iterated(kernel, line(1).iterations(want.guests[i]))
		w.Repeat = max(int(gpuTimePerCheck/want.guests[i]), workload.Backlog)
		m.Work, m.Channels, m.Preempt = []workload.Work{w}, 1, "off"
		final = append(final, w)
	}
	d.urgencyPair = func() (*guest, *guest) {
		b, u := urgencyPair()
		b.Work, u.Work = []workload.Work{batch}, []workload.Work{urgent}
		return b, u
	}
	if found, err = d.solo(ctx, final); err != nil {
		return err
	}
	others, guests := found[:2], found[2:]
	for i, m := range d.guests {
		m.alone = time.Duration(guests[i] * float64(time.Second))
	}
	return d.progress("alone, their kernels take %.0f, %.0f and %.0f µs, a batch kernel %.1f ms and an urgent one %.0f µs",
		1e6*guests[0], 1e6*guests[1], 1e6*guests[2], 1e3*others[0], 1e6*others[1])
}

// iterated returns a throttle kernel with n iterations.
func iterated(w workload.Work, n int) workload.Work {
	t := *w.Throttle
	t.Iterations = n
	w.Throttle = &t
	return w
}

// speed is a kernel's time in seconds, linear in its iterations.
type speed struct{ fixed, each float64 }

// speedOf returns the line through two measurements, or one through zero if theirs has a negative
// time at zero or does not rise.
func speedOf(n int, tn float64, m int, tm float64) speed {
	s := speed{each: (tm - tn) / float64(m-n)}
	s.fixed = tn - s.each*float64(n)
	if s.each <= 0 || s.fixed < 0 {
		s = speed{each: tm / float64(m)}
	}
	return s
}

// iterations returns the number of iterations that take about d, at least one.
func (s speed) iterations(d time.Duration) int {
	return int(min(max(math.Round((d.Seconds()-s.fixed)/s.each), 1), 1<<30))
}

// soloLaunches is how many launches in a row are timed.
const soloLaunches = 16

// solo times kernels alone on the GPU, in a guest's process even if the demo's guests are VMs.
func (d *demo) solo(ctx context.Context, w []workload.Work) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	const name = "alone"
	v, err := d.client.CreateVM(ctx, api.VMSpec{Name: name, Weight: 1, BAR2Bytes: 64 << 20})
	if err != nil {
		return nil, err
	}
	plan, err := json.Marshal(workload.Plan{Name: name, Socket: v.Socket, Work: w, Solo: soloLaunches, Preempt: "off"})
	if err != nil {
		return nil, err
	}
	cmd, err := d.o.Program("demo-guest")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(plan), &out
	p, err := d.start("guest-"+name, cmd)
	if err != nil {
		return nil, err
	}
	var late error
	select {
	case <-p.ended():
	case <-ctx.Done():
		late = ctx.Err()
	}
	var report workload.SoloReport
	if err := errors.Join(late, p.end()); err != nil {
		return nil, fmt.Errorf("time kernels alone: %w", err)
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Seconds) != len(w) {
		return nil, fmt.Errorf("time kernels alone: %w: want %d times, got %s", err, len(w), out.Bytes())
	}
	return report.Seconds, d.client.ForceDeleteVM(ctx, name)
}
