package tenant

import (
	"context"
	"slices"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft"
)

// roomyGPU is a GPU in software that has all the memory that is asked for, as long as nobody uses
// it.
type roomyGPU struct {
	*bare
	next uint64
}

func (r *roomyGPU) alloc(_ context.Context, bytes uint64) (uint64, error) {
	p := r.next
	r.next += (bytes + 255) &^ 255
	return p, nil
}

func (r *roomyGPU) copyIn(context.Context, uint64, []byte) error { return nil }

// TestScaledKernelsCanBeLaunched holds that there is each kernel, with parameters of the sizes of
// the arguments, blocks that a GPU takes, and memory to be compared.
func TestScaledKernelsCanBeLaunched(t *testing.T) {
	device, err := soft.NewLocal(soft.Options{MemoryBytes: 64 << 20, Priority: -1})
	if err != nil {
		t.Fatal(err)
	}
	b := &bare{device: device}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	if b.context, err = device.NewContext(t.Context(), gpu.ContextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(Scaled(), "spin") {
		m := &roomyGPU{bare: b, next: 1 << 40}
		j, err := loadScaled(t.Context(), m, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s := j.steps[0]
		if threads := s.block[0] * s.block[1] * s.block[2]; threads == 0 || threads > 1024 || slices.Contains(s.grid[:], 0) || s.grid[1] > 65535 {
			t.Errorf("%s: %v blocks of %v", name, s.grid, s.block)
		}
		if len(j.results) == 0 && name != "histogram" { // which adds to what there is
			t.Errorf("%s: no results", name)
		}
		if used := m.next - 1<<40; used > 6<<30 {
			t.Errorf("%s: %d MiB of memory", name, used>>20)
		}
	}
}
