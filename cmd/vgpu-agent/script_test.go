package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vgpud/guestagent/fatbin"
	"vgpud/guestagent/program/programtest"
	"vgpud/mediator/vgpu/abi"
)

var update = flag.Bool("update", false, "write what the scripts in testdata expect anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vgpu-agent": main})
}

// TestScripts runs the scripts in testdata, each in a guest of its own: a fake root with the
// devices that the command `plug` adds.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			// Paths of sockets are short.
			dir, err := os.MkdirTemp("", "vgpu-agent-")
			if err != nil {
				return err
			}
			e.Setenv("VGPU_AGENT_SOCKET", filepath.Join(dir, "agent.sock"))
			e.Defer(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			return os.MkdirAll(filepath.Join(e.WorkDir, "root/sys/bus/pci/devices"), 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"plug": plug, "program": makeProgram},
	})
}

// plug adds a virtual GPU to the script's root: plug ADDRESS [driver=NAME] [no-room] [ended]. Its BAR0 only
// has the identity registers.
func plug(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: plug ADDRESS [driver=NAME] [no-room]")
	}
	dir := ts.MkAbs("root/sys/bus/pci/devices/" + args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	none := "0x0 0x0 0x0\n"
	shared := fmt.Sprintf("0x80000000 %#x 0x14220c\n", 0x80000000+abi.MinSharedBytes-1)
	for _, a := range args[1:] {
		name, driver := strings.CutPrefix(a, "driver=")
		switch {
		case driver:
			ts.Check(os.Symlink("../../../drivers/"+name, filepath.Join(dir, "driver")))
		case a == "ended": // what QEMU answers for a device whose process has ended
			ts.Check(os.WriteFile(filepath.Join(dir, "config"), []byte{0x95, 0xff, 0xff, 0xff}, 0o644))
		case a == "no-room":
			shared = none
		default:
			ts.Fatalf("plug: what is %q?", a)
		}
	}
	for name, text := range map[string]string{
		"vendor": "0x7667\n", "device": "0x0001\n", "class": "0x120000\n", "driver_override": "(null)\n", "enable": "0\n",
		"resource":  "0xfea00000 0xfea0ffff 0x40200\n" + none + shared + none + none + none,
		"resource0": string(make([]byte, abi.BAR0Size)),
		"resource2": string(make([]byte, abi.MinSharedBytes)),
	} {
		ts.Check(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

// makeProgram writes a program file: program FILE [needed=LIBRARY | imports=FUNCTION |
// defines=FUNCTION | text=FILE | fatbin=FILE | machine=NUMBER]... A text or fat binary is made of a
// file with PTX.
func makeProgram(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: program FILE [PART=VALUE]...")
	}
	var p programtest.Program
	for _, a := range args[1:] {
		part, value, _ := strings.Cut(a, "=")
		switch part {
		case "needed":
			p.Needed = append(p.Needed, value)
		case "imports":
			p.Undefined = append(p.Undefined, value)
		case "defines":
			p.Defined = append(p.Defined, value)
		case "text":
			p.Data = append(append(append(p.Data, 0), ts.ReadFile(value)...), 0)
		case "fatbin":
			b, err := fatbin.Append(nil, fatbin.Image{Kind: fatbin.PTX, Major: 7, SM: 80, Data: []byte(ts.ReadFile(value)), Compression: fatbin.LZ4})
			ts.Check(err)
			p.Fatbin = append(p.Fatbin, b...)
		case "machine":
			n, err := strconv.ParseUint(value, 0, 16)
			ts.Check(err)
			p.Machine = uint16(n)
		default:
			ts.Fatalf("program: what is %q?", a)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), p.Bytes(), 0o755))
}
