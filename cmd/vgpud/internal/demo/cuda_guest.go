package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"vgpud/cmd/vgpud/workload"
	"vgpud/guestagent/cuda"
	"vgpud/mediator/api"
)

// cudaTenant is the program of the guests that run CUDA programs. It is compiled from
// tenant/tenant.cu, and lies beside this program, with the libraries that it loads in lib.
const cudaTenant = "cuda-tenant"

// cudaGuests returns the guests of the first phases as CUDA programs, see [newGuests].
func cudaGuests() []*guest {
	all := []*guest{
		{weight: 1, Plan: workload.Plan{Name: "long"}, program: []string{"product", "6"}},
		{weight: 2, Plan: workload.Plan{Name: "medium"}, program: []string{"sum", "6"}},
		{weight: 4, Plan: workload.Plan{Name: "short"}, program: []string{"add", "6"}},
	}
	for _, m := range all {
		m.ready = make(chan struct{})
	}
	return all
}

// cudaPair returns the guests of the third phase as CUDA programs, see [urgencyPair].
func cudaPair() (batch, urgent *guest) {
	batch = &guest{weight: 1, Plan: workload.Plan{Name: "batch"}, ready: make(chan struct{}), program: []string{"spin", "2"}}
	urgent = &guest{weight: 1, ceiling: api.MaxPriority, Plan: workload.Plan{Name: "urgent"}, ready: make(chan struct{})}
	const greatestPriority = "-5" // of a CUDA stream
	urgent.program = []string{"blink", "1", strconv.FormatInt(urgentPause.Microseconds(), 10), greatestPriority}
	return batch, urgent
}

// findTenant returns the tenant's program and the folder of its libraries.
func findTenant() (program, libraries string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	program, libraries = filepath.Join(filepath.Dir(self), cudaTenant), filepath.Join(filepath.Dir(self), "lib")
	for _, f := range []string{program, filepath.Join(libraries, "libcuda.so.1")} {
		if _, err := os.Stat(f); err != nil {
			return "", "", fmt.Errorf("the tenants' CUDA program: %w (run `make demo DEMOFLAGS=--cuda`, which builds it)", err)
		}
	}
	return program, libraries, nil
}

// startCUDA starts a guest as a CUDA program, which finds its virtual GPU by its environment.
func (d *demo) startCUDA(m *guest) (instance, error) {
	program, libraries, err := findTenant()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, m.program...)
	if old := os.Getenv("LD_LIBRARY_PATH"); old != "" {
		libraries += ":" + old
	}
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries, cuda.SocketVariable+"="+m.socket)
	return d.follow(m, cmd)
}
