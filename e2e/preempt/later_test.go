package preempt

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"vgpud/e2e/preempt/hard"
	"vgpud/mediator/vgpu/abi"
)

// A kernel whose blocks wait for later blocks has no form. Where one has a form, the test runs it
// like a GPU that holds one block per SM less than of the original; it then never ends.
func TestLater(t *testing.T) {
	const sms, perSM = hard.LaterBlocks / 2, 2
	for _, k := range hard.Laters() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			m, reports := transform(t, k.PTX())
			r, err := newRig(t.Context(), m, k.Case())
			if err != nil {
				t.Fatal(err)
			}
			r.reset()
			s := &schedule{rng: rand.New(rand.NewPCG(1, 2)), sms: sms, perSM: perSM, pace: mixed, lag: 1, nanos: 1000}
			if err := r.original(s); err != nil {
				t.Fatalf("the original: %v", err)
			}
			r.reference, r.settled = r.snapshot(), true
			if got := binary.LittleEndian.Uint32(r.byName["out"].data[8192:]); k.Chained() && got != hard.LaterBlocks {
				t.Fatalf("the original's first block has counted %d blocks", got)
			}
			for _, f := range r.offered(k.Name) {
				t.Errorf("it has form %v: %v", f, reports)
				d := newDrive(r, 7)
				d.schedule = &schedule{rng: d.rng, sms: sms, perSM: perSM - 1, pace: mixed, lag: 1, nanos: 1000}
				d.only, d.evictions = f, 0
				if f != abi.PreemptSingle {
					d.group = 1
				}
				if err := d.run(); err != nil {
					t.Errorf("with a block an SM less it goes wrong: %v\n%v", err, d)
				}
			}
		})
	}
}
