package preempt

import (
	"fmt"
	"testing"

	"vgpud/e2e/preempt/hard"
	"vgpud/guestagent/preempt"
	"vgpud/mediator/vgpu/abi"
)

// Each of these kernels is refused with a reason, or sound in the forms that it has.
func TestTricky(t *testing.T) {
	for _, k := range hard.Tricks() {
		t.Run(fmt.Sprintf("%s/%s/%dx%dx%d", k.File, k.Entry, k.Grid[0], k.Grid[1], k.Grid[2]), func(t *testing.T) {
			t.Parallel()
			m, reports := transform(t, hard.PTX(k.File))
			var forms abi.PreemptForm
			for _, r := range reports {
				if r.Kernel != k.Entry {
					continue
				}
				for _, f := range r.Forms {
					forms |= f
				}
				t.Logf("forms %v, reason %q %s, waits %v, barriers %+v", forms, r.Reason, r.Detail, r.WaitsForBlocks, r.Barriers)
				if (forms == 0) == r.Preemptible || forms&^abi.PreemptSingle == 0 && r.Reason == preempt.None {
					t.Errorf("forms %v, preemptible %v, without a reason", forms, r.Preemptible)
				}
			}
			if k.Least&^forms != 0 || forms&^k.Most != 0 {
				t.Errorf("forms %v, want at least %v and at most %v", forms, k.Least, k.Most)
			}
			if forms == 0 {
				return
			}
			var sum tally
			sound(t, m, 40, &sum, k.Case())
		})
	}
}

// TestManyUnits has more units than a list holds, so that skipped units are recorded in a bitmap.
func TestManyUnits(t *testing.T) {
	for _, form := range allForms {
		t.Run(form.String(), func(t *testing.T) {
			t.Parallel()
			m, _ := transform(t, hard.PTX("memory"))
			k := hard.Trick{Entry: "no_parameters", Grid: [3]uint32{701, 101, 1}, Block: [3]uint32{1, 1, 1}, Bare: true}
			r, err := newRig(t.Context(), m, k.Case())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.settle(1, 1); err != nil {
				t.Fatal(err)
			}
			r.only, r.group = form, 1
			again := 0
			for n := range uint64(4) {
				d := newDrive(r, n)
				if err := d.run(); err != nil {
					t.Fatalf("run %d: %v\n%v", n, err, d)
				}
				again += d.evicted
			}
			if again == 0 {
				t.Error("nothing was evicted")
			}
		})
	}
}
