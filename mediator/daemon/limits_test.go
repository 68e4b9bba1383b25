package daemon

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"vgpud/mediator/api"
)

// TestSpecsAreBounded: values that the kernel would take modulo something, or by which a sum would
// overflow, are refused with the bounds.
func TestSpecsAreBounded(t *testing.T) {
	d := startDaemon(t, runDir(t))
	for _, id := range []int{-1, math.MinInt, 1<<32 - 1, 1 << 32, 1<<32 + 1000, math.MaxInt} {
		for _, spec := range []api.VMSpec{{UID: &id}, {GID: &id}} {
			spec.Name = "a"
			err := d.tryCreate(spec)
			if !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), "id "+strconv.Itoa(id)+": want a number from 0 to 4294967294") {
				t.Errorf("%d: %v", id, err)
			}
		}
	}
	for want, spec := range map[string]api.VMSpec{
		"want at most 24h0m0s":          {KernelTimeLimit: 999999 * time.Hour},
		"want at most 1125899906842624": {MemoryLimitBytes: 1 << 63},
	} {
		spec.Name = "a"
		if err := d.tryCreate(spec); !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	if vms := d.service.VMs(); len(vms) > 0 {
		t.Errorf("made %+v", vms)
	}
}
