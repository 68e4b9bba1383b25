package scheduling

import (
	"cmp"
	"testing"
	"time"

	"vgpud/gpu/soft/machine"
	"vgpud/mediator/daemon"
)

// offenders are programs of a guest that keeps the GPU for as long as it can, in each of 16
// contexts.
var offenders = []struct {
	name     string
	channels int
	program  func(a *actor)
	// least is the part that its neighbour has to have, where that is not a quarter: of kernels
	// that end, or are ended, shortly before the limit there may be more in some 20 s.
	least float64
}{
	{name: "endless", channels: 1, program: func(a *actor) { a.keep(0, 2, 0) }},
	{name: "endless in streams", channels: 4, program: func(a *actor) {
		for ch := range a.waiting {
			a.keep(ch, 2, 0)
		}
	}},
	{name: "nearly too long", channels: 4, least: 0.245, program: func(a *actor) {
		for ch := range a.waiting {
			a.keep(ch, 2, daemon.DefaultKernelTimeLimit*99/100)
		}
	}},
	{name: "long", channels: 2, program: func(a *actor) {
		for ch := range a.waiting {
			a.keep(ch, 4, time.Second)
		}
	}},
	{name: "brief until all are known to be", channels: 1, least: 0.245, program: func(a *actor) {
		known := true
		for _, o := range a.w.actors {
			known = known && (o.g != a.g || o.done >= 3)
		}
		switch {
		case a.done < 3:
			a.keep(0, 1, 50*time.Microsecond)
		case known || a.done > 3:
			a.keep(0, 1, 0)
		}
	}},
}

// TestEndlessContexts: a guest that is entitled to a third of the GPU, beside one with 16 contexts
// whose kernels run as long as they may, has at least a quarter of it in any 20 seconds, and waits
// for no more than one kernel time limit.
func TestEndlessContexts(t *testing.T) {
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices, machine.CoRun} {
		for _, o := range offenders {
			t.Run(mode.String()+"/"+o.name, func(t *testing.T) {
				w := newWorld(t, mode, daemon.DefaultKernelTimeLimit)
				mine, other := w.add(1), w.add(2)
				w.join(mine, 0, 1, func(a *actor) { a.keep(0, 16, 700*time.Microsecond) })
				for slot := range 16 {
					w.join(other, slot, o.channels, o.program)
				}
				length := 50 * time.Second
				if mode == machine.Slices {
					length = 25 * time.Second // the guests' turns are short
				}
				w.run(length)
				part, longest := w.least(20 * time.Second)
				t.Logf("%.4f at least, %v at most", part, longest)
				if want := cmp.Or(o.least, 0.25); part < want {
					t.Errorf("it had %.4f of the GPU in 20 s, want %v", part, want)
				}
				if longest > daemon.DefaultKernelTimeLimit {
					t.Errorf("it waited for %v, want up to %v", longest, daemon.DefaultKernelTimeLimit)
				}
			})
		}
	}
}
