package cuda

import (
	"context"
	"sync/atomic"
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// TestReachHost checks when launches ask the host that kernels reach page-locked memory: once in a
// context, even if the host fails, and never while there is none of that memory or with a host that
// doesn't offer it.
func TestReachHost(t *testing.T) {
	for name, older := range map[string]bool{"this version": false, "1.1": true} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			once := int64(1)
			if older {
				once = 0
			}
			host, err := drivertest.NewHost(drivertest.Options{
				SharedBytes: 32 << 20, Features: abi.AllFeatures &^ abi.FeatureTriggeredEvents &^ abi.FeatureIdentity &^ abi.FeatureAlike,
				Version1_1: older, Kernels: map[string]drivertest.Kernel{"inc": drivertest.Increment},
				WindowAddress: func() error { asked.Add(1); return abi.StatusOutOfMemory },
			})
			if err != nil {
				t.Fatal(err)
			}
			d := New(Options{Hooks: silent{t}, Open: func(context.Context) (driver.Bus, error) { return host, nil }})
			want(t, "init", d.Init(), Success)
			t.Cleanup(func() {
				d.endContexts()
				if err := d.gpu.Close(); err != nil {
					t.Error(err)
				}
			})
			c := d.thread(NewThread(1, 16))
			var x Handle
			want(t, "create", c.CtxCreateV2(&x, 0, 0), Success)
			var p uint64
			want(t, "alloc", c.MemAllocV2(&p, 64), Success)
			launches := func(inc Handle, times int64) {
				t.Helper()
				n := uint32(64)
				params := []Pointer{Pointer(&p), Pointer(&n)}
				for range 3 {
					want(t, "launch", c.LaunchKernel(inc, 1, 1, 1, 1, 1, 1, 0, 0, &params[0], nil), Success)
				}
				r, _ := c.done(c.CtxSynchronize())
				want(t, "synchronize", r, Success)
				if n := asked.Swap(0); n != times {
					t.Errorf("the host was asked %d times, want %d", n, times)
				}
			}
			inc := c.kernelNamed(t, "inc")
			launches(inc, 0)
			var pinned, other Pointer
			b := make([]byte, 8192)
			want(t, "register", c.MemHostRegisterV2(startOf(b), 8192, 0), Success)
			launches(inc, 0)
			want(t, "alloc", c.MemHostAlloc(&pinned, 4096, 0), Success)
			want(t, "alloc", c.MemHostAlloc(&other, 4096, 0), Success)
			launches(inc, once)
			launches(inc, 0)
			for _, q := range []Pointer{pinned, other} {
				r, _ := c.done(c.MemFreeHost(q))
				want(t, "free", r, Success)
			}
			if n := d.host.shared.Load(); n != 0 {
				t.Errorf("%d ranges are shared after all were freed", n)
			}
			// Another context has nothing to reach until there is some again, which ends with it.
			var y Handle
			want(t, "create", c.CtxCreateV2(&y, 0, 0), Success)
			want(t, "alloc", c.MemAllocV2(&p, 64), Success)
			inc = c.kernelNamed(t, "inc")
			launches(inc, 0)
			want(t, "alloc", c.MemHostAlloc(&pinned, 4096, 0), Success)
			launches(inc, once)
			want(t, "destroy", c.CtxDestroyV2(y), Success)
			if n := d.host.shared.Load(); n != 0 {
				t.Errorf("%d ranges are shared after their context", n)
			}
		})
	}
}
