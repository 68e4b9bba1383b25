package ptx

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// fickle is a context that ends when it is asked for the n-th time.
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

// TestParseContext checks that a parse whose context ends stops where it is, even within one long
// function.
func TestParseContext(t *testing.T) {
	const statements = 20_000
	src := ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<2>;\n" +
		strings.Repeat("add.s32 %r1, %r1, 1;\n", statements) + "ret;\n}\n"
	all := &fickle{Context: t.Context(), n: 1 << 30}
	if _, err := (Options{}).ParseContext(all, src); err != nil {
		t.Fatal(err)
	}
	if all.asked < statements/contextInterval {
		t.Errorf("%d statements were read with %d looks", statements, all.asked)
	}
	for n := 1; n <= all.asked; n++ {
		f := &fickle{Context: t.Context(), n: n}
		m, err := (Options{}).ParseContext(f, src)
		if m != nil || !errors.Is(err, context.Canceled) {
			t.Fatalf("ended at the %d. look: %v, %v", n, m, err)
		}
		if f.asked > n+1 { // the last call is for the error
			t.Errorf("ended at the %d. look and read on to the %d.", n, f.asked)
		}
	}
}
