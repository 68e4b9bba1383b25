package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// rootVariable is the root directory that the program takes in scripts.
const rootVariable = "VGPU_QEMU_TEST_ROOT"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vgpu-qemu": func() {
		os.Exit(run(host{root: os.Getenv(rootVariable), owner: uint32(os.Getuid())}, os.Args[1:]))
	}})
}

// TestScripts runs the scripts in testdata, each in a root directory with a QEMU that prints its
// arguments and its environment.
func TestScripts(t *testing.T) {
	deploy, err := filepath.Abs("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv(rootVariable, e.WorkDir)
			e.Setenv("DOMAIN", "run/vgpud/domains/"+web1)
			e.Setenv("UUID", web1)
			e.Setenv("DEPLOY", deploy)
			if err := os.MkdirAll(filepath.Join(e.WorkDir, "usr/bin"), 0o755); err != nil {
				return err
			}
			const qemu = "#!/bin/sh\necho \"$0\"\nfor a; do echo \"<$a>\"; done\necho \"SPECIAL=$SPECIAL\"\n"
			return os.WriteFile(filepath.Join(e.WorkDir, "usr/bin/qemu-system-x86_64"), []byte(qemu), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"filled": filled},
	})
}

// filled FILE N writes a file of N bytes.
func filled(ts *testscript.TestScript, _ bool, args []string) {
	size, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat("x\n", size)[:size]), 0o644))
}
