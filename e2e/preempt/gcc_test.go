package preempt

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/gpu/corpus"
	"vgpud/ptx"
	"vgpud/ptx/link"
)

// TestGCC runs kernels that GCC makes of OpenMP and OpenACC regions, linked with its device
// libraries, with evictions at random times.
func TestGCC(t *testing.T) {
	for _, c := range []struct {
		file, flag string
		openMP     bool
		threads    [3]uint32
		kernels    int
	}{
		{"team", "-fopenmp", true, [3]uint32{32, 8, 1}, 2},
		{"gang", "-fopenacc", false, [3]uint32{32, 4, 1}, 1},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			m, reports := transform(t, linked(t, c.file, c.flag))
			if len(reports) != c.kernels {
				t.Fatalf("%d kernels, want %d", len(reports), c.kernels)
			}
			for _, r := range reports {
				if !r.Preemptible {
					t.Fatalf("%s has no form: %v %s", r.Kernel, r.Reason, r.Detail)
				}
				t.Logf("%s: forms %v, reason %v", r.Kernel, r.Forms, r.Reason)
				offloading := &corpus.Case{
					Kernel: c.file,
					Buffers: []corpus.Buffer{
						{Name: "out", Global: "out", Mode: corpus.Scratch, Elem: corpus.U32, Size: 4 * 4096},
						{Name: "total", Global: "total", Mode: corpus.Scratch, Elem: corpus.U32, Size: 8},
					},
					Steps: []corpus.Launch{{Entry: r.Kernel, Grid: [3]uint32{12, 1, 1}, Block: c.threads}},
				}
				step := &offloading.Steps[0]
				if c.openMP {
					// The parameters: mapped variables, of which there are none, and each thread's stack.
					const stack = 8 << 10
					offloading.Buffers = append(offloading.Buffers, corpus.Buffer{Name: "stacks", Mode: corpus.Scratch, Elem: corpus.U32, Size: 12 * 8 * stack})
					step.Args = []corpus.Arg{{Bytes: make([]byte, 8)}, {Buffer: "stacks"}, {Bytes: binary.LittleEndian.AppendUint64(nil, stack)}}
				} else {
					step.Args = []corpus.Arg{{Bytes: make([]byte, 8)}}
				}
				g, err := newRig(t.Context(), m, offloading)
				if err != nil {
					t.Fatal(err)
				}
				const heapBytes = 8 << 20
				at, _, err := g.alloc(heapBytes)
				if err != nil {
					t.Fatal(err)
				}
				g.heap = [2]uint64{at, heapBytes}
				for _, reg := range g.regions { // what is left in stacks and in the library's variables says nothing
					reg.loose = reg.name != "out" && reg.name != "total"
				}
				var sum tally
				soundRigs(t, 40, &sum, g)
				for _, reg := range g.regions {
					if !reg.loose && bytes.Equal(reg.data, make([]byte, len(reg.data))) {
						t.Errorf("%s has written nothing to %s", r.Kernel, reg.name)
					}
				}
				if sum.evicted < 10 && !one() {
					t.Errorf("%s: only %d of %d runs were evicted", r.Kernel, sum.evicted, sum.runs)
				}
			}
		})
	}
}

// linked compiles a program of testdata/gcc and returns its device code as one module.
func linked(t *testing.T, name, flag string) string {
	t.Helper()
	deps := os.Getenv("VGPUD_SUITE_DEPS")
	if deps == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		deps = filepath.Join(cache, "vgpud", "suites")
	}
	root := filepath.Join(deps, "root")
	compiler := filepath.Join(root, "usr/bin/x86_64-linux-gnu-gcc-12")
	if _, err := os.Stat(compiler); err != nil {
		t.Skipf("no offloading GCC (%v): run `make suite-deps`", err)
	}
	program := filepath.Join(t.TempDir(), name)
	cmd := exec.Command(compiler, "--sysroot="+root, "-B"+filepath.Join(root, "usr/bin"), "-O2", flag,
		"-foffload=nvptx-none", "-foffload-options=-misa=sm_80", filepath.Join("testdata/gcc", name+".c"), "-o", program)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(deps, "libs"), "PATH="+filepath.Join(root, "usr/bin")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var objects []link.Object
	for part := range bytes.SplitSeq(b, []byte{0}) {
		if !strings.HasPrefix(string(part[:min(len(part), 32)]), "// BEGIN PREAMBLE") {
			continue
		}
		m, err := ptx.Parse(string(part))
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, link.Object{Name: name, Module: m})
	}
	m, err := link.Link(objects, link.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.String()
}
