package variables

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"testing"

	"vgpud/e2e/preempt/hard"
	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/gputest"
	"vgpud/gpu/soft"
	"vgpud/ptx"
	"vgpud/ptx/variables"
)

// boundContext is a context whose modules' kernels run from modules of their own, bound to the
// variables of the module that was loaded.
type boundContext struct {
	gpu.Context
	t       testing.TB
	bound   int // kernels
	reasons map[string]variables.Reason
}

func (c *boundContext) LoadModule(image []byte) (gpu.Module, error) {
	m, err := c.Context.LoadModule(image)
	return &boundModule{Module: m, c: c, text: string(image), made: map[string]gpu.Module{}}, err
}

type boundModule struct {
	gpu.Module
	c    *boundContext
	text string
	made map[string]gpu.Module
}

// Function returns the kernel of a module with it alone, or the original if it can't be bound.
func (m *boundModule) Function(name string) (gpu.Function, error) {
	if made := m.made[name]; made != nil {
		return made.Function(name)
	}
	parsed, err := ptx.Parse(m.text)
	if err != nil {
		return nil, err
	}
	out, err := variables.Bind(parsed, name, func(variable string) (variables.Place, error) {
		p, n, err := m.Global(variable)
		return variables.Place{Address: uint64(p), Bytes: n}, err
	})
	if r, ok := errors.AsType[*variables.Refusal](err); ok {
		m.c.reasons[name] = r.Reason
		return m.Module.Function(name)
	}
	if err != nil {
		return nil, err
	}
	made, err := m.c.Context.LoadModule([]byte(out.String()))
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	m.c.bound++
	m.made[name] = made
	return made.Function(name)
}

// Unload also unloads the kernels' modules.
func (m *boundModule) Unload() error {
	errs := []error{m.Module.Unload()}
	for _, made := range m.made {
		errs = append(errs, made.Unload())
	}
	return errors.Join(errs...)
}

// newContext returns a context of a GPU in software, and one over it that binds.
func newContext(t testing.TB) (gpu.Context, *boundContext) {
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
	ctx, err := device.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, &boundContext{Context: ctx, t: t, reasons: map[string]variables.Reason{}}
}

// TestCorpus runs every kernel of the corpus from a module of its own. Its results are those of the
// reference, variables that the host reads included.
func TestCorpus(t *testing.T) {
	_, bound := newContext(t)
	for _, k := range corpus.All() {
		t.Run(k.Name, func(t *testing.T) {
			c := k.Case(corpus.Trivial, 5)
			gputest.RunModule(t, bound, []byte(k.PTX(corpus.SM80)), c, c.CheckAll)
		})
	}
	if want := map[string]variables.Reason{"call_indirect": variables.FunctionAddress}; !maps.Equal(bound.reasons, want) {
		t.Errorf("refused: %v, want %v", bound.reasons, want)
	}
	if bound.bound < 80 {
		t.Errorf("only %d kernels bound", bound.bound)
	}
	t.Logf("%d kernels bound, refused: %v", bound.bound, bound.reasons)
}

// TestTricks runs kernels that are hard to rewrite from modules of their own, with the results of
// launches from the original.
func TestTricks(t *testing.T) {
	ctx, bound := newContext(t)
	for _, k := range hard.Tricks() {
		if k.File == "vectors" {
			continue // the GPU in software does not load it: it moves special registers as a whole
		}
		t.Run(k.File+"/"+k.Entry, func(t *testing.T) {
			c, want := k.Case(), map[string][]byte{}
			each := func(visit func(b *corpus.Buffer, got []byte) error) func(read func(*corpus.Buffer) ([]byte, error)) error {
				return func(read func(*corpus.Buffer) ([]byte, error)) error {
					for i := range c.Buffers {
						b := &c.Buffers[i]
						if b.Mode == corpus.Scratch && b.Init == nil {
							continue
						}
						got, err := read(b)
						if err == nil {
							err = visit(b, got)
						}
						if err != nil {
							return err
						}
					}
					return nil
				}
			}
			gputest.RunModule(t, ctx, []byte(hard.PTX(k.File)), c, each(func(b *corpus.Buffer, got []byte) error {
				want[b.Name] = got
				return nil
			}))
			gputest.RunModule(t, bound, []byte(hard.PTX(k.File)), c, each(func(b *corpus.Buffer, got []byte) error {
				if !bytes.Equal(got, want[b.Name]) {
					return fmt.Errorf("buffer %s is not as after launches from the original", b.Name)
				}
				return nil
			}))
		})
	}
	want := map[string]variables.Reason{
		"direct$_omp_fn$1": variables.FunctionAddress, "region$_omp_fn$0": variables.FunctionAddress,
		"locked_otherwise": variables.FunctionAddress, "through_table": variables.FunctionAddress,
	}
	if !maps.Equal(bound.reasons, want) {
		t.Errorf("refused: %v, want %v", bound.reasons, want)
	}
	if bound.bound < 60 {
		t.Errorf("only %d kernels bound", bound.bound)
	}
}
