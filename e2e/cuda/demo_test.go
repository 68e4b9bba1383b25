package cuda

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"vgpud/e2e/host"
)

// TestDemo runs the demo with CUDA programs as guests: under the fair policy each has results
// checked, and for the urgent one kernels of the other are evicted.
func TestDemo(t *testing.T) {
	compiler, dir := clang(t), folder(t)
	compileCUDA(t, "rt_basic.cu") // which makes the toolkit
	programs, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	// The demo looks for the libraries and the program beside itself, wherever a link leads.
	if err := errors.Join(os.Symlink(dir, filepath.Join(bin, "lib")), os.Link(filepath.Join(programs, "vgpud"), filepath.Join(bin, "vgpud"))); err != nil {
		t.Fatal(err)
	}
	source := "../../cmd/vgpud/internal/demo/tenant/tenant.cu"
	compile := exec.Command(filepath.Join(dir, "cuda/bin/cuda-cc"), "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(bin, "cuda-tenant"), source)
	compile.Env = append(os.Environ(), "CUDA_CLANG="+compiler)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", compile, err, out)
	}
	demo := exec.CommandContext(t.Context(), filepath.Join(bin, "vgpud"), "demo", "--cuda", "--duration", "2s", "-o", "json")
	demo.Stderr = os.Stderr
	out, err := demo.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r struct {
		Phases []struct {
			Policy string
			Guests []struct {
				Name    string
				Kernels uint64
			}
		}
		Preemption struct {
			Verified  bool
			Evictions uint64
		}
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Phases) != 2 || !r.Preemption.Verified || r.Preemption.Evictions == 0 {
		t.Fatalf("%s", out)
	}
	for _, p := range r.Phases {
		for _, g := range p.Guests {
			if g.Kernels == 0 {
				t.Errorf("policy %s: guest %s has launched nothing", p.Policy, g.Name)
			}
		}
	}
}
