package mediator

import (
	"testing"
	"time"

	"vgpud/gpu/soft/machine"
)

// offenders are programs of a guest that keeps the GPU for as long as it can, in each of
// 16 contexts.
var offenders = map[string]struct {
	channels int
	program  func(a *actor)
}{
	"endless": {1, func(a *actor) { a.keep(0, 2, 0) }},
	"endless in streams": {4, func(a *actor) {
		for ch := range a.waiting {
			a.keep(ch, 2, 0)
		}
	}},
	"nearly too long": {4, func(a *actor) {
		for ch := range a.waiting {
			a.keep(ch, 2, DefaultKernelTimeLimit*99/100)
		}
	}},
	"brief until all are": {1, func(a *actor) {
		all := true
		for _, o := range a.w.actors {
			all = all && (o.g != a.g || o.done >= 3)
		}
		switch {
		case a.done < 3:
			a.keep(0, 1, 50*time.Microsecond)
		case all || a.done > 3:
			a.keep(0, 1, 0)
		}
	}},
	"long": {2, func(a *actor) {
		for ch := range a.waiting {
			a.keep(ch, 4, time.Second)
		}
	}},
}

// TestEndlessContexts: a guest that is entitled to a third of the GPU, beside one with 16
// contexts whose kernels run as long as they may, has at least a quarter of it in any 20
// seconds, and waits for no more than one kernel time limit.
func TestEndlessContexts(t *testing.T) {
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices, machine.CoRun} {
		for name, o := range offenders {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				w := newWorld(t, mode, DefaultKernelTimeLimit)
				mine, other := w.scene.join(1, 1), w.scene.join(2, 2)
				w.join(mine, 0, 1, func(a *actor) { a.keep(0, 16, 700*time.Microsecond) })
				for slot := range 16 {
					w.join(other, slot, o.channels, o.program)
				}
				w.run(2 * time.Minute)
				part, longest := w.least(20 * time.Second)
				t.Logf("%.4f at least, %v at most, %.3f of all", part, longest, float64(w.marks[len(w.marks)-1].mine)/float64(w.m.Now()))
				if part < 0.25 {
					t.Errorf("it had %.4f of the GPU in 20 s, want a quarter", part)
				}
				if longest > DefaultKernelTimeLimit+100*ms {
					t.Errorf("it waited for %v, want up to %v", longest, DefaultKernelTimeLimit)
				}
			})
		}
	}
}
