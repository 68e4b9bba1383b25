package preempt

import (
	"errors"
	"hash/fnv"
	"testing"

	"vgpud/e2e/preempt/hard"
	"vgpud/gpu"
)

// soundGenerated transforms a generated kernel and runs it with evictions.
func soundGenerated(t *testing.T, data []byte, times uint64, sum *tally) {
	t.Helper()
	src, c := hard.Generate(data)
	m, _ := transform(t, src)
	r, err := newRig(t.Context(), m, c)
	if err != nil {
		if errors.Is(err, gpu.ErrUnsupported) {
			t.Skip(err)
		}
		t.Fatalf("%v\n%s", err, src)
	}
	if len(r.offered("k")) == 0 {
		return
	}
	if err := r.settle(1, 2); err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	h := fnv.New64a()
	h.Write(data)
	for n := range times {
		d := newDrive(r, h.Sum64()+n)
		if err := d.run(); err != nil {
			t.Fatalf("%v\n%v\n%s\n%s", err, d, src, m)
		}
		sum.add(d)
	}
}

// TestGenerated is TestSound for generated kernels. A failure shows the kernel and its
// transformation.
func TestGenerated(t *testing.T) {
	var sum tally
	kernels := *runs / 10
	refused := 0
	for n := range uint64(kernels) {
		before := sum.runs
		soundGenerated(t, hard.Input(*from+n), 3, &sum)
		if t.Failed() {
			t.Fatalf("input %d", *from+n)
		}
		if sum.runs == before {
			refused++
		}
	}
	t.Logf("%d kernels, %d refused, %d runs, %d with evictions: forms %v", kernels, refused, sum.runs, sum.evicted, sum.forms)
	for _, f := range allForms {
		if sum.forms[f] == 0 {
			t.Errorf("no launch in form %v", f)
		}
	}
	if refused > kernels/2 {
		t.Errorf("%d of %d generated kernels were refused", refused, kernels)
	}
}

// FuzzGenerated lets the fuzzer choose the kernel.
func FuzzGenerated(f *testing.F) {
	for n := range uint64(20) {
		f.Add(hard.Input(1_000_000 + n))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1000 {
			return
		}
		soundGenerated(t, data, 3, new(tally))
	})
}
