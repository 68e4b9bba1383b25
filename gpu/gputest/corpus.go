package gputest

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
)

// RunCase carries out a case of the corpus in a context, with its copies and launches, and checks
// its results. It returns the GPU time of its launches, and leaves nothing in the context.
func RunCase(tb testing.TB, ctx gpu.Context, k corpus.Kernel, c *corpus.Case) (busy time.Duration) {
	tb.Helper()
	return RunModule(tb, ctx, []byte(k.PTX(corpus.SM80)), c, c.CheckAll)
}

// RunModule is RunCase with a module that has the case's entries, and with a check of the results,
// which read returns.
func RunModule(tb testing.TB, ctx gpu.Context, module []byte, c *corpus.Case, check func(read func(*corpus.Buffer) ([]byte, error)) error) (busy time.Duration) {
	tb.Helper()
	m, err := ctx.LoadModule(module)
	if err != nil {
		tb.Fatal(err)
	}
	ch, err := ctx.NewChannel()
	if err != nil {
		tb.Fatal(err)
	}
	at, owned := place(tb, ctx, ch, m, c)
	for i := range c.Steps {
		fence, err := ch.Launch(launch(tb, m, &c.Steps[i], at))
		if err == nil {
			err = ch.Wait(tb.Context(), fence)
		}
		if err != nil {
			tb.Fatal(err)
		}
		o := ch.Outcome(fence)
		if o.Err != nil || o.Start > o.End {
			tb.Fatalf("%s, launch %d: %+v", c.Kernel, i, o)
		}
		busy += o.End - o.Start
	}
	err = check(func(b *corpus.Buffer) ([]byte, error) {
		got := make([]byte, b.Size)
		f, err := ch.CopyOut(got, at[b.Name])
		if err != nil {
			return nil, err
		}
		return got, ch.Wait(tb.Context(), f)
	})
	if err != nil {
		tb.Error(err)
	}
	checkPrinted(tb, ctx, c)
	if err := ch.Close(); err != nil {
		tb.Fatal(err)
	}
	for _, p := range owned {
		if err := ctx.Free(p); err != nil {
			tb.Fatal(err)
		}
	}
	if err := m.Unload(); err != nil {
		tb.Fatal(err)
	}
	return busy
}

// place makes and fills the case's buffers. owned are those that are not variables of the module.
func place(tb testing.TB, ctx gpu.Context, ch gpu.Channel, m gpu.Module, c *corpus.Case) (at map[string]gpu.Ptr, owned []gpu.Ptr) {
	tb.Helper()
	at = make(map[string]gpu.Ptr)
	for _, b := range c.Buffers {
		var p gpu.Ptr
		var err error
		if b.Global != "" {
			p, _, err = m.Global(b.Global)
		} else if p, err = ctx.Alloc(uint64(b.Size)); err == nil {
			owned = append(owned, p)
		}
		if err == nil && len(b.Init) > 0 {
			_, err = ch.CopyIn(p, b.Init)
		}
		if err != nil {
			tb.Fatalf("buffer %s: %v", b.Name, err)
		}
		at[b.Name] = p
	}
	return at, owned
}

// launch returns the launch of a step of a case whose buffers are at the given addresses.
func launch(tb testing.TB, m gpu.Module, s *corpus.Launch, at map[string]gpu.Ptr) *gpu.Launch {
	tb.Helper()
	f, err := m.Function(s.Entry)
	if err != nil {
		tb.Fatal(err)
	}
	a := f.Attributes()
	params := make([]byte, a.ParamBytes)
	for i, arg := range s.Args {
		v := arg.Bytes
		if arg.Buffer != "" {
			v = binary.LittleEndian.AppendUint64(nil, uint64(at[arg.Buffer])+arg.Offset)
		}
		copy(params[a.Params[i].Offset:][:a.Params[i].Size], v)
	}
	return &gpu.Launch{
		Function: f, SharedBytes: uint64(s.SharedBytes), Params: params,
		Grid: gpu.Dim3{X: s.Grid[0], Y: s.Grid[1], Z: s.Grid[2]}, Block: gpu.Dim3{X: s.Block[0], Y: s.Block[1], Z: s.Block[2]},
	}
}

// checkPrinted checks the lines that a case prints, in any order.
func checkPrinted(tb testing.TB, ctx gpu.Context, c *corpus.Case) {
	tb.Helper()
	if len(c.Printed) == 0 {
		return
	}
	text, err := ctx.Printf(1 << 20)
	if err != nil {
		tb.Fatal(err)
	}
	got := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	slices.Sort(got)
	if !slices.Equal(got, c.Printed) {
		tb.Errorf("printed %q, want %q", got, c.Printed)
	}
}
