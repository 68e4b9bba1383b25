package callable

import (
	"errors"
	"testing"
	"time"

	"vgpud/e2e/preempt/hard"
	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft"
	"vgpud/ptx/callable"
)

// try compares calls with launches in a context of their own, in which a kernel that waits for ever
// is ended, and returns what became of the case's kernel.
func try(t testing.TB, device *soft.Device, src string, c *corpus.Case, indirect bool) callable.Report {
	t.Helper()
	text, reports := calling(t, src, indirect)
	r := reports[c.Steps[0].Entry]
	if r.Function == "" {
		return r
	}
	ctx, err := device.NewContext(t.Context(), gpu.ContextOptions{KernelTimeLimit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ctx.Close(); err != nil && !errors.Is(err, gpu.ErrTimeLimit) {
			t.Error(err)
		}
	}()
	none := func(func(*corpus.Buffer) ([]byte, error)) error { return nil }
	compare(t, ctx, src, text, c, called(c, reports), none)
	return r
}

// TestTricks calls the kernels that are hard to make preemptible.
func TestTricks(t *testing.T) {
	device := newDevice(t)
	made, all := 0, 0
	for _, k := range hard.Tricks() {
		t.Run(k.File+"/"+k.Entry, func(t *testing.T) {
			all++
			r := try(t, device, hard.PTX(k.File), k.Case(), all%2 == 0)
			if r.Function != "" {
				made++
			} else {
				t.Logf("%v: %s", r.Reason, r.Detail)
			}
		})
	}
	t.Logf("%d of %d are callable", made, all)
	if made*3 < all {
		t.Errorf("only %d of %d are callable", made, all)
	}
}

// TestGenerated calls generated kernels, with functions, barriers, returns and exchanges at random.
func TestGenerated(t *testing.T) {
	device := newDevice(t)
	made, reasons := 0, map[callable.Reason]int{}
	for seed := range uint64(150) {
		src, c := hard.Generate(hard.Input(seed))
		r := try(t, device, src, c, seed%2 == 0)
		reasons[r.Reason]++
		if r.Function != "" {
			made++
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, src)
		}
	}
	t.Logf("%d are callable: %v", made, reasons)
	if made < 30 {
		t.Errorf("only %d are callable: %v", made, reasons)
	}
}

// FuzzGenerated is TestGenerated for any input.
func FuzzGenerated(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(hard.Input(seed))
	}
	device := newDevice(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		src, c := hard.Generate(data)
		try(t, device, src, c, len(data)%2 == 0)
	})
}
