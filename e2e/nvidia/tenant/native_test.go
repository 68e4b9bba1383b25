package tenant

import (
	"testing"

	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/cuda/cudatest"
)

// twoGPUs is a host with as many.
type twoGPUs struct{ *cudatest.GPU }

func (twoGPUs) DeviceGetCount() (int, error)         { return 2, nil }
func (twoGPUs) DeviceGet(i int) (cuda.Device, error) { return cuda.Device(i), nil }

func (twoGPUs) DeviceGetUUID(d cuda.Device) ([16]byte, error) { return [16]byte{0xab, byte(d)}, nil }

// TestNativeProgramsAreOnTheGuestsGPU has programs that guests are compared with on a host where
// the daemon has the second GPU.
func TestNativeProgramsAreOnTheGuestsGPU(t *testing.T) {
	d := twoGPUs{cudatest.New()}
	for name, want := range map[string]int{"": 0, "GPU-ab000000-0000-0000-0000-000000000000": 0, "GPU-ab010000-0000-0000-0000-000000000000": 1, "1": 1} {
		if got, err := indexOf(d, name); err != nil || got != want {
			t.Errorf("%q is GPU %d, %v; want %d", name, got, err, want)
		}
	}
	if i, err := indexOf(d, "GPU-none"); err == nil {
		t.Errorf("a GPU that there is not is GPU %d", i)
	}
}
