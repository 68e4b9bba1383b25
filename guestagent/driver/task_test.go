package driver_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// TestFloatingContext makes contexts that float, and one that doesn't in a slot that one had.
func TestFloatingContext(t *testing.T) {
	_, dev, plain := open(t, drivertest.Options{})
	gpu, err := dev.NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{MemoryBytes: 5<<32 + 7, Blocks: 9, Threads: 64}})
	if err != nil {
		t.Fatal(err)
	}
	want := driver.Placement{State: abi.TaskPlaced, Granted: 5<<32 + 7}
	if got := must[driver.Placement](t)(gpu.Placement()); got != want {
		t.Errorf("placement %s", cmp.Diff(want, got))
	}
	if got := must[driver.Placement](t)(plain.Placement()); got.State != abi.TaskNone {
		t.Errorf("a context that does not float is %+v", got)
	}
	// The host refuses a request for nothing, so the next one would be refused too if the flag
	// stayed.
	if _, err := dev.NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{}}); !errors.Is(err, abi.ErrorBadRequest) {
		t.Errorf("a context of no memory: %v", err)
	}
	if _, err := dev.NewContext(t.Context(), driver.ContextOptions{}); err != nil {
		t.Errorf("a plain context in a slot where one was to float: %v", err)
	}
}

// TestFloatOnOldHosts asks a host that has no such contexts for one.
func TestFloatOnOldHosts(t *testing.T) {
	for name, o := range map[string]drivertest.Options{
		"version 1.1":    {Version1_1: true, Features: abi.AllFeatures},
		"does not float": {Features: abi.AllFeatures &^ abi.FeatureFloating},
	} {
		_, dev, _ := open(t, o)
		if _, err := dev.NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{MemoryBytes: 1}}); !errors.Is(err, abi.StatusNotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
