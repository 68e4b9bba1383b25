package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	caller = `// BEGIN PREAMBLE
.version 6.0
.target sm_30
.address_size 64
.extern .func helper;
.visible .entry main$_omp_fn$0 (.param.u64 p) { call helper; ret; }
`
	helper = `// BEGIN PREAMBLE
.version 6.0
.target sm_30
.address_size 64
.visible .func helper { ret; }
`
)

// TestKernelsAreCountedAfterLinking checks that a program's objects are found, and that a kernel
// which calls another object's function has a form once both are linked.
func TestKernelsAreCountedAfterLinking(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "test"), []byte("\x7fELF\x00"+caller+"\x00\x00other\x00"+helper+"\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := offloaded(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{caller, helper}, objects); diff != "" {
		t.Fatal("-want +got\n" + diff)
	}
	var linked, alone kernels
	linked.countLinked(objects)
	alone.countModule(caller)
	if diff := cmp.Diff(kernels{Total: 1, Preemptible: 1}, linked); diff != "" {
		t.Error("linked: -want +got\n" + diff)
	}
	if diff := cmp.Diff(kernels{Total: 1, Reasons: map[string]int{"external-call": 1}}, alone); diff != "" {
		t.Error("alone: -want +got\n" + diff)
	}
	var missing kernels
	missing.countLinked(objects[:1])
	if len(missing.Errors) != 1 {
		t.Errorf("with an object missing: %+v", missing)
	}
}

func TestPrintedModules(t *testing.T) {
	module := "//\n// Generated\n.version 5.0\n.func f()\n{\n}\n\t// .globl g\n.entry g()\n{\n}\n"
	out := "Offloading...\nPTX kernel:\n" + module + "\nLowering...\nPTX kernel:\n" + module + "\nEmbedding\nSuccess!\n"
	modules, rest := printed(out)
	if diff := cmp.Diff([]string{module, module}, modules); diff != "" {
		t.Error("-want +got\n" + diff)
	}
	if !strings.Contains(rest, "Success!") || strings.Contains(rest, ".entry") {
		t.Errorf("the rest is %q", rest)
	}
}
