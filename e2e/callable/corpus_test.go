package callable

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/gputest"
	"vgpud/gpu/soft"
	"vgpud/ptx"
	"vgpud/ptx/callable"
)

// refused are the kernels of the corpus that can't be called.
var refused = map[string]callable.Reason{
	"barrier_named":      callable.Barrier, // arrivals
	"barrier_last_block": callable.Barrier,
	"early_return":       callable.Barrier,
	"early_block":        callable.Barrier,
	"spmv_vector":        callable.WarpAfterReturn,
	"warp_sum":           callable.WarpAfterReturn,
	"warp_exchange":      callable.WarpAfterReturn,
}

// TestCorpus calls every kernel of the corpus that can be called from a resident kernel. The results
// are those of launches bit for bit.
func TestCorpus(t *testing.T) {
	ctx, err := newDevice(t).NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ran, found := map[string]int{}, map[string]callable.Reason{}
	for _, k := range corpus.All() {
		for _, indirect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/indirect=%t", k.Name, indirect), func(t *testing.T) {
				text, reports := calling(t, k.PTX(corpus.SM80), indirect)
				for _, r := range reports {
					switch {
					case r.Function == "":
						found[r.Kernel] = r.Reason
						if refused[r.Kernel] != r.Reason {
							t.Errorf("%s is refused: %v (%s), want %v", r.Kernel, r.Reason, r.Detail, refused[r.Kernel])
						}
					case r.Waits:
						ran["all blocks at once"]++
					case r.Block:
						ran["block by block"]++
					default:
						ran["warp by warp"]++
					}
				}
				c := k.Case(corpus.Trivial, 5)
				compare(t, ctx, k.PTX(corpus.SM80), text, c, called(c, reports), c.CheckAll)
			})
		}
	}
	if !maps.Equal(found, refused) {
		t.Errorf("refused: %v, want %v", found, refused)
	}
	t.Logf("kernels called: %v; refused: %v", ran, found)
}

// compare carries out a case by launches, with a check of the results, and by calls, and compares.
func compare(t testing.TB, ctx gpu.Context, launched, calling string, c, byCalls *corpus.Case, check func(read func(*corpus.Buffer) ([]byte, error)) error) {
	t.Helper()
	want := map[string][]byte{}
	gputest.RunModule(t, ctx, []byte(launched), c, func(read func(*corpus.Buffer) ([]byte, error)) error {
		for i := range c.Buffers {
			b := &c.Buffers[i]
			got, err := read(b)
			if err != nil {
				return err
			}
			want[b.Name] = got
		}
		return check(read)
	})
	gputest.RunModule(t, ctx, []byte(calling), byCalls, func(read func(*corpus.Buffer) ([]byte, error)) error {
		for i := range c.Buffers {
			b := &c.Buffers[i]
			if got, err := read(b); err != nil {
				return err
			} else if (b.Mode != corpus.Scratch || b.Init != nil) && !bytes.Equal(got, want[b.Name]) {
				return fmt.Errorf("buffer %s is not as after launches", b.Name)
			}
		}
		return nil
	})
}

// calling returns a module with functions and resident kernels, and the reports by kernel.
func calling(t testing.TB, src string, indirect bool) (string, map[string]callable.Report) {
	t.Helper()
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	made, reports, err := callable.Make(m, callable.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, byName := made.String(), map[string]callable.Report{}
	for _, r := range reports {
		byName[r.Kernel] = r
		if r.Function == "" {
			continue
		}
		more, err := resident(m, r, indirect)
		if err != nil {
			t.Fatal(err)
		}
		text += more
	}
	return text, byName
}

// newDevice returns a GPU in software.
func newDevice(t testing.TB) *soft.Device {
	t.Helper()
	device, err := soft.NewLocal(soft.Options{MemoryBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	})
	return device
}
