package preempt

import (
	"fmt"
	"testing"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/preempt"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// TestSound runs every kernel of the corpus, transformed, with evictions at random times.
func TestSound(t *testing.T) {
	var sum tally
	t.Run("corpus", func(t *testing.T) {
		all := corpus.All()
		each := (*runs + 2*len(all) - 1) / (2 * len(all))
		for _, k := range all {
			for _, arch := range corpus.Arches() {
				t.Run(k.Name+"/"+string(arch), func(t *testing.T) {
					t.Parallel()
					m, reports := transform(t, k.PTX(arch))
					for _, r := range reports {
						if r.Preemptible {
							continue
						}
						t.Logf("%s is left as it is: %v %s", r.Kernel, r.Reason, r.Detail)
					}
					sound(t, m, each, &sum, k.Case(corpus.Trivial, 1), k.Case(corpus.Trivial, 2))
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

// TestChecks is TestSound with the papers' ways of checking the evict word.
func TestChecks(t *testing.T) {
	for _, word := range []preempt.Word{preempt.DeviceWord, preempt.HostWord, preempt.ProxyWord} {
		for _, all := range []bool{false, true} {
			check := preempt.Check{Word: word, AllThreads: all}
			if check == (preempt.Check{}) {
				continue // TestSound does this one
			}
			t.Run(fmt.Sprintf("%v/all %v", word, all), func(t *testing.T) {
				t.Parallel()
				var sum tally
				for _, name := range []string{"reduce", "transpose", "lookback", "indices", "earlyreturn", "calls"} {
					k, ok := corpus.ByName(name)
					if !ok {
						t.Fatalf("the corpus has no kernel %s", name)
					}
					m, _ := transformTo(t, k.PTX(corpus.SM90), preempt.Options{Check: check})
					r, err := newRig(t.Context(), m, k.Case(corpus.Trivial, 1))
					if err != nil {
						t.Fatal(err)
					}
					r.wordCheck = check
					soundRigs(t, max(*runs/100, 3), &sum, r)
				}
				t.Logf("%d runs, %d with evictions: forms %v", sum.runs, sum.evicted, sum.forms)
				if one() {
					return
				}
				if sum.evicted < sum.runs/4 {
					t.Errorf("only %d of %d runs were evicted", sum.evicted, sum.runs)
				}
				for _, f := range allForms {
					if offered := word != preempt.ProxyWord || f == abi.PreemptPersistent; offered != (sum.forms[f] > 0) {
						t.Errorf("%d launches in form %v", sum.forms[f], f)
					}
				}
			})
		}
	}
}

// transform parses and transforms a text.
func transform(t testing.TB, src string) (*ptx.Module, []preempt.Report) {
	t.Helper()
	return transformTo(t, src, preempt.Options{})
}

func transformTo(t testing.TB, src string, o preempt.Options) (*ptx.Module, []preempt.Report) {
	t.Helper()
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	out, reports, err := preempt.Transform(m, o)
	if err != nil {
		t.Fatal(err)
	}
	// The transformation is applied to the text, which is what a tenant sends.
	again, err := ptx.Parse(out.String())
	if err != nil {
		t.Fatalf("the transformed module does not parse: %v", err)
	}
	return again, reports
}
