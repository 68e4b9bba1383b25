package main

import (
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// some are a few tests of each suite that take seconds.
var some = regexp.MustCompile(`^(libgomp libgomp\.c/examples-4/(target-1|declare_target-3|async_target-1)\.c` +
	`|libgomp libgomp\.c\+\+/target-lambda-1\.C|libgomp libgomp\.fortran/target1\.f90` +
	`|libgomp libgomp\.c/target-print-1\.c` +
	`|libgomp libgomp\.oacc-c: libgomp\.oacc-c-c\+\+-common/(asyncwait-nop-1|reduction-1|private-variables|lib-69)\.c` +
	`|libgomp libgomp\.oacc-c\+\+/routine-1-auto\.C|libgomp libgomp\.oacc-fortran/collapse-1\.f90` +
	`|halide correctness/(hello_gpu|gpu_transpose|gpu_thread_barrier|gpu_dynamic_shared|device_buffer_copy)\.cpp)$`)

// TestSome runs a few tests of each suite, if the compilers are there. `make test-cuda` runs all.
func TestSome(t *testing.T) {
	tree, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	o := &options{tree: tree, bin: filepath.Join(tree, "bin"), parallel: 2, limit: 10 * time.Minute}
	c, err := openToolchain(o.tree, o.bin)
	if err != nil {
		t.Skip("no compilers:", err)
	}
	if !exists(filepath.Join(c.library, "libcuda.so.1")) {
		t.Skip("no libcuda.so.1: `make build` builds it")
	}
	all, err := allTests(c)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := chosen(all, some.String())
	if err != nil {
		t.Fatal(err)
	}
	const want = 17
	if len(tests) != want {
		t.Errorf("%d tests, want %d", len(tests), want)
	}
	if err := c.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	rs, err := openResults(filepath.Join(t.TempDir(), "results"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer rs.Close()
	if err := runAll(t.Context(), c, tests, rs, o); err != nil {
		t.Fatal(err)
	}
	for _, x := range tests {
		r, _ := rs.has(x)
		if r.Outcome != passed {
			t.Errorf("%s: %s: %s\n%s", x.id(), r.Outcome, r.Cause, r.Output)
		}
		if r.Forms != nil && r.Forms.Preemptible < r.Forms.Total {
			t.Errorf("%s: preemptible forms: %v", x.id(), r.Forms)
		}
	}
}
