package simt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// fickle is a context that ends when it is checked for the n-th time.
type fickle struct {
	context.Context
	n, asked int
}

func (f *fickle) Err() error {
	f.asked++
	if f.asked >= f.n {
		return context.Canceled
	}
	return nil
}

// A cancelled load ends soon, between functions and within a long one.
func TestCancelledLoad(t *testing.T) {
	var b strings.Builder
	b.WriteString(".version 8.0\n.target sm_80\n.address_size 64\n")
	const kernels, each = 4, 1000
	for i := range kernels {
		fmt.Fprintf(&b, ".visible .entry k%d()\n{\n.reg .b32 %%r<2>;\n%sret;\n}\n", i, strings.Repeat("add.s32 %r1, %r1, 1;\n", each))
	}
	all := &fickle{Context: t.Context(), n: 1 << 30}
	if _, err := Load(all, parse(t, b.String()), Options{}); err != nil {
		t.Fatal(err)
	}
	if least := kernels * (each/checkEvery + 1); all.asked < least {
		t.Errorf("%d looks at %d kernels of %d instructions, want %d", all.asked, kernels, each, least)
	}
	for n := 1; n <= all.asked; n++ {
		f := &fickle{Context: t.Context(), n: n}
		m, err := Load(f, parse(t, b.String()), Options{})
		if m != nil || !errors.Is(err, context.Canceled) || f.asked != n {
			t.Fatalf("ended at the %d. look of %d: %v, %v", n, f.asked, m, err)
		}
	}
}
