package preempt

import (
	"testing"

	"vgpud/e2e/kernels"
	"vgpud/guestagent/preempt"
	"vgpud/ptx"
)

// TestSound runs every kernel of the corpus, transformed, with evictions at random
// moments.
func TestSound(t *testing.T) {
	var sum tally
	t.Run("corpus", func(t *testing.T) {
		all := kernels.All()
		each := (*runs + 2*len(all) - 1) / (2 * len(all))
		for _, k := range all {
			for _, arch := range kernels.Arches() {
				t.Run(k.Name+"/"+string(arch), func(t *testing.T) {
					t.Parallel()
					m, reports := transform(t, k.PTX(arch))
					for _, r := range reports {
						if r.Preemptible {
							continue
						}
						t.Logf("%s is left as it is: %v %s", r.Kernel, r.Reason, r.Detail)
					}
					sound(t, m, each, &sum, k.Case(kernels.Trivial, 1), k.Case(kernels.Trivial, 2))
				})
			}
		}
	})
	t.Logf("%d runs, %d with evictions, %d launches that went on: forms %v", sum.runs, sum.evicted, sum.again, sum.forms)
	if one() || t.Failed() {
		return
	}
	for _, f := range allForms {
		if sum.forms[f] == 0 {
			t.Errorf("no launch in form %v", f)
		}
	}
	if sum.evicted < sum.runs/3 {
		t.Errorf("only %d of %d runs were evicted", sum.evicted, sum.runs)
	}
}

// transform parses and transforms a text.
func transform(t testing.TB, src string) (*ptx.Module, []preempt.Report) {
	t.Helper()
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	out, reports, err := preempt.Transform(m, preempt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// What is loaded is what would be sent: text.
	again, err := ptx.Parse(out.String())
	if err != nil {
		t.Fatalf("the transformed module does not parse: %v", err)
	}
	return again, reports
}
