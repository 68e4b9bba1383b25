package preempt

import (
	"bytes"
	"testing"

	"vgpud/e2e/preempt/hard"
	"vgpud/ptx"
)

// TestOriginalsKeepTheirResults runs the original kernels of modules before and after the
// transformation: functions that are called through pointers differ there, and the original kernels
// call them, too.
func TestOriginalsKeepTheirResults(t *testing.T) {
	for _, k := range hard.Tricks() {
		if k.File != "offload" && k.Entry != "through_table" {
			continue
		}
		t.Run(k.File+"/"+k.Entry, func(t *testing.T) {
			t.Parallel()
			before, err := ptx.Parse(hard.PTX(k.File))
			if err != nil {
				t.Fatal(err)
			}
			after, _ := transform(t, hard.PTX(k.File))
			if before.String() == after.String() {
				t.Fatal("nothing was transformed")
			}
			var results [2][]byte
			for i, m := range []*ptx.Module{before, after} {
				r, err := newRig(t.Context(), m, k.Case())
				if err != nil {
					t.Fatal(err)
				}
				if err := r.settle(1, 4); err != nil {
					t.Fatal(err)
				}
				results[i] = bytes.Clone(r.byName["out"].data)
			}
			if !bytes.Equal(results[0], results[1]) {
				t.Error("the results differ")
			}
			if empty := make([]byte, len(results[0])); bytes.Equal(results[0], empty) {
				t.Error("the kernel has written nothing")
			}
		})
	}
}
