package cuda

import (
	"context"
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]uint64{
		"1": 1, "512M": 512 << 20, "3g": 3 << 30, "7K": 7 << 10, "18446744073709551615": 1<<64 - 1,
		"512MiB": 512 << 20, "3gib": 3 << 30, "7KiB": 7 << 10, "2T": 2 << 40, "2TiB": 2 << 40,
		"iB": 0, "1iB": 0, "1MB": 0, "MiB": 0, "1MiBiB": 0, "1KM": 0, "1 MiB": 0, "16777216TiB": 0,
		"": 0, "0": 0, "0M": 0, "-1": 0, "1.5G": 0, "M": 0, "18446744073709551615K": 0, "17179869184G": 0, "GG": 0,
	} {
		if got, ok := parseBytes(s); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", s, got, ok, want)
		}
	}
}

// TestTaskMemory: the variable says what a program's contexts ask for.
func TestTaskMemory(t *testing.T) {
	for value, want := range map[string]driver.Placement{"3M": {State: abi.TaskPlaced, Granted: 3 << 20}, "": {GPU: -1}} {
		t.Setenv(taskMemoryVariable, value)
		c, _ := newCall(t)
		var h Handle
		if r := c.CtxCreateV2(&h, 0, 0); r != Success {
			t.Fatal(r)
		}
		got, err := get[Context](&c.d.objects, h).gpu.Placement()
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", value, got, err, want)
		}
	}
}

// creating is a host that tells when the program has asked for a context.
type creating struct {
	*drivertest.Host
	asked chan struct{}
}

func (h creating) Write(off, v uint32) error {
	err := h.Host.Write(off, v)
	if off == uint32(abi.ContextSlot(0, abi.ContextControl)) && v == uint32(abi.ControlCreate) {
		close(h.asked)
	}
	return err
}

// TestOthersDontWait: while one thread waits until a GPU has room for its context, others can give memory
// back, ask about the device's primary context, and end the program.
func TestOthersDontWait(t *testing.T) {
	for _, primary := range []bool{false, true} {
		host, err := drivertest.NewHost(drivertest.Options{SharedBytes: 32 << 20, Features: abi.FeatureContexts, NeverReady: true})
		if err != nil {
			t.Fatal(err)
		}
		h := creating{host, make(chan struct{})}
		d := New(Options{Hooks: silent{t}, Open: func(context.Context) (driver.Bus, error) { return h, nil }})
		want(t, "init", d.Init(), Success)
		waits := make(chan Result)
		go func() {
			c, out := d.thread(NewThread(1, 16)), Handle(0)
			if primary {
				waits <- c.DevicePrimaryCtxRetain(&out, 0)
			} else {
				waits <- c.CtxCreateV2(&out, 0, 0)
			}
		}()
		<-h.asked
		var flags uint32
		active := int32(1)
		c := d.thread(NewThread(2, 16))
		want(t, "the primary context's state", c.DevicePrimaryCtxGetState(0, &flags, &active), Success)
		if active != 0 {
			t.Error("the primary context is there before a GPU has room")
		}
		if d.owner(1) != nil {
			t.Error("an address is a context's that is not there")
		}
		d.Exit()
		host.Die()
		if r := <-waits; r == Success {
			t.Error("a context of a device that is gone")
		}
		if err := d.gpu.Close(); err != nil {
			t.Log(err) // the device is gone
		}
	}
}
