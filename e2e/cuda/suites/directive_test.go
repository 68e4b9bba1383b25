package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDirectives(t *testing.T) {
	source := `/* { dg-do run { target { ! openacc_host_selected } } } */
// { dg-additional-options "-O2 -DX=\"y\"" { target c } }
! { dg-output "a \[0-9\]+(\n|\r\n)" }
/* {dg-do compile} is none: no blanks inside the braces */
/* { dg-set-target-env-var OMP_NUM_THREADS "2" } */`
	got, err := directives(source)
	if err != nil {
		t.Fatal(err)
	}
	want := []directive{
		{"dg-do", []string{"run", " target { ! openacc_host_selected } "}, 1},
		{"dg-additional-options", []string{`-O2 -DX="y"`, " target c "}, 2},
		{"dg-output", []string{"a [0-9]+(\n|\r\n)"}, 3},
		{"dg-set-target-env-var", []string{"OMP_NUM_THREADS", "2"}, 5},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(directive{})); diff != "" {
		t.Error("-want +got\n" + diff)
	}
}

func TestUnclosedWordsAreRefused(t *testing.T) {
	for _, s := range []string{`{ a`, `"a`, `"a\"`} {
		if words, err := tclWords(s); err == nil {
			t.Errorf("tclWords(%s) = %q", s, words)
		}
	}
}

func TestSelectors(t *testing.T) {
	for _, c := range []struct {
		selector, lang string
		want           bool
	}{
		{"", "c", true},
		{" c ", "c", true},
		{"c", "c++", false},
		{"*-*-*", "c", true},
		{"i?86-*-* x86_64-*-*", "c", true},
		{"hppa*-*-hpux*", "c", false},
		{"! openacc_host_selected", "c", true},
		{"openacc_radeon_accel_selected || openacc_host_selected", "c", false},
		{"openacc_radeon_accel_selected && { ! __OPTIMIZE__ }", "c", false},
		{"{ { i?86-*-* x86_64-*-* } && lp64 }", "c", true},
		{"lp64 && { ! lp64 }", "c", false},
	} {
		got, err := selects(c.selector, c.lang)
		if err != nil || got != c.want {
			t.Errorf("selects(%q, %s) = %v, %v", c.selector, c.lang, got, err)
		}
	}
	if _, err := selects("no_such_target", "c"); err == nil {
		t.Error("an unknown effective target is no error")
	}
}

// TestApply checks what directives make of a test.
func TestApply(t *testing.T) {
	for _, c := range []struct {
		name, source string
		want         test
	}{
		{"options", `{ dg-options "-O0" } ` + "\n" + `{ dg-additional-options "-DA" { target c } } ` + "\n" + `{ dg-additional-options "-DB" { target c++ } } `,
			test{optimize: []string{"-O0"}, extra: []string{"-DA"}}},
		{"compiled", `{ dg-do compile } `, test{skip: "only built: dg-do compile"}},
		{"replaced", `{ dg-do link { target offload_target_amdgcn } } ` + "\n" + `{ dg-do run { target offload_target_nvptx } } `, test{}},
		{"skipped unless", `{ dg-skip-if "" { *-*-* } { "*" } { "-DACC_MEM_SHARED=0" } } `, test{skip: "not built this way"}},
		{"skipped if", `{ dg-skip-if "" { *-*-* } { "-DACC_MEM_SHARED=1" } } `, test{}},
		{"needs", `{ dg-require-effective-target openacc_cublas } `, test{skip: "requires openacc_cublas"}},
		{"fails", `{ dg-shouldfail "" { openacc_nvidia_accel_selected } } ` + "\n" + `{ dg-output "no" } ` + "\n" + `{ dg-output "t" } `,
			test{shouldFail: true, output: "not"}},
		{"expected", `{ dg-xfail-run-if "" { *-*-* } } `, test{xfail: true}},
		{"environment", `{ dg-set-target-env-var "A" "1" } `, test{env: []string{"A=1"}}},
		{"sources", `{ dg-additional-sources "a.c b.c" } `, test{sources: []string{"d/a.c", "d/b.c"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := directives(c.source)
			if err != nil {
				t.Fatal(err)
			}
			got := test{dir: "d"}
			for _, d := range list {
				if err := got.apply(d, "c"); err != nil {
					t.Fatal(err)
				}
			}
			c.want.dir = "d"
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(test{}, step{})); diff != "" {
				t.Error("-want +got\n" + diff)
			}
		})
	}
}

func FuzzDirectives(f *testing.F) {
	f.Add(`{ dg-do run { target { ! c } } } `)
	f.Add(`{ dg-output "a \[0-9\]+" } `)
	f.Add(`{ dg-skip-if "" { *-*-* } { "*" } { "" } } `)
	f.Fuzz(func(t *testing.T, source string) {
		list, err := directives(source)
		if err != nil {
			return
		}
		var got test
		for _, d := range list {
			_ = got.apply(d, "c")
		}
	})
}
