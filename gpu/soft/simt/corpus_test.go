package simt

import (
	"path/filepath"
	"os"
	"testing"
)

func TestCorpusLoads(t *testing.T) {
	files, _ := filepath.Glob("../../../e2e/kernels/ptx/*/*.ptx")
	more, _ := filepath.Glob("../../../ptx/testdata/real/*.ptx")
	for _, f := range append(files, more...) {
		t.Run(filepath.Base(filepath.Dir(f))+"/"+filepath.Base(f), func(t *testing.T) {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Load(parse(t, string(src)), Options{})
			if err != nil {
				t.Fatal(err)
			}
			_ = m
		})
	}
}

func TestVecAdd(t *testing.T) {
	src, err := os.ReadFile("../../../e2e/kernels/ptx/sm_90/vecadd.ptx")
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, string(src))
	t.Log(m.module.Kernels()[0].Attributes())
}
