package ptx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// code returns about a megabyte of compilers' code without array initializers: the kernels among
// the samples, repeated.
func code(b *testing.B) string {
	names, _ := filepath.Glob("../gpu/corpus/ptx/*.ptx")
	names = append(names, "testdata/nvcc_release.ptx", "testdata/triton.ptx")
	var bodies []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		m, err := Parse(string(text))
		if err != nil {
			b.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		for _, it := range m.Items {
			if f, ok := it.(*Func); ok && f.Body != nil {
				bodies = append(bodies, strings.Join(lines[f.Pos.Line-1:f.Body.End.Line], ""))
			}
		}
	}
	var all strings.Builder
	all.WriteString(".version 9.0\n.target sm_90\n.address_size 64\n")
	for all.Len() < 1<<20 {
		for _, f := range bodies {
			all.WriteString(f)
		}
	}
	return all.String()
}

func BenchmarkParse(b *testing.B) {
	src := code(b)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(src); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseInitialiser(b *testing.B) {
	src := ".version 9.0\n.target sm_90\n.address_size 64\n.global .b8 a[1000000] = {" + strings.Repeat("123, 7, ", 100000) + "1};\n"
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(src); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkResolve binds the names of all samples.
func BenchmarkResolve(b *testing.B) {
	var modules []*Module
	total := 0
	for _, src := range samples(b) {
		modules = append(modules, mustParse(b, src))
		total += len(src)
	}
	b.SetBytes(int64(total))
	b.ReportAllocs()
	for b.Loop() {
		for _, m := range modules {
			if _, err := Resolve(m); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkPrint(b *testing.B) {
	src := code(b)
	m, err := Parse(src)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		_ = m.String()
	}
}
