package daemon

import (
	"errors"
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// TestMemoryUsed checks that the memory that a guest takes is shown, and gone when it is freed, and
// that a page that lies shows no more than the limit.
func TestMemoryUsed(t *testing.T) {
	d := startDaemon(t, runDir(t))
	const limit = 32 << 20
	v := d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, MemoryLimitBytes: limit})
	if v.MemoryUsedBytes != 0 {
		t.Errorf("a guest without contexts uses %d bytes", v.MemoryUsedBytes)
	}
	c, err := attach(t, v.Socket).NewContext(t.Context(), driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := d.vm("a").MemoryUsedBytes
	const size = 4 << 20
	p, err := c.Alloc(t.Context(), size)
	if err != nil {
		t.Fatal(err)
	}
	if used := d.vm("a").MemoryUsedBytes; used < before+size || used > before+size+1<<20 {
		t.Errorf("with %d bytes more: %d after %d", size, used, before)
	}
	if err := c.Free(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if used := d.vm("a").MemoryUsedBytes; used != before {
		t.Errorf("freed: %d, before %d", used, before)
	}
	page := d.guest("a").page
	for slot := range d.executors("a") {
		for !page.Memory(slot, 0).Take(1 << 55) {
			page.SetTerms(ipc.Terms{Weight: 1}) // as a hostile process can
		}
	}
	if used := d.vm("a").MemoryUsedBytes; used != limit {
		t.Errorf("a page that lies: %d, want at most the limit, %d", used, limit)
	}
}

// TestMemoryLimitChanges: a changed limit holds at the next allocation, also below what is in use, for
// contexts that come later, and after the daemon's restart.
func TestMemoryLimitChanges(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	v := d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, MemoryLimitBytes: 16 << 20})
	a := attach(t, v.Socket)
	c, err := a.NewContext(t.Context(), driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	alloc := func(c *driver.Context, size uint64, want bool) {
		t.Helper()
		if _, err := c.Alloc(t.Context(), size); (err == nil) != want || err != nil && !errors.Is(err, abi.StatusMemoryLimit) {
			t.Errorf("%d bytes: %v, want success %v", size, err, want)
		}
	}
	limit := func(d *daemon, bytes uint64) {
		t.Helper()
		v, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{MemoryLimitBytes: &bytes})
		if err != nil || v.MemoryLimitBytes != bytes {
			t.Fatalf("limit %d, %v; want %d", v.MemoryLimitBytes, err, bytes)
		}
	}
	alloc(c, 4<<20, true)
	limit(d, 2<<20)
	alloc(c, 1<<20, false)
	if v := d.vm("a"); v.MemoryUsedBytes < 4<<20 {
		t.Errorf("what is in use beyond the limit is %d bytes", v.MemoryUsedBytes)
	}
	limit(d, 8<<20)
	alloc(c, 1<<20, true)
	limit(d, 32<<20)
	second, err := a.NewContext(t.Context(), driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	alloc(second, 20<<20, true)
	huge := uint64(api.MaxMemoryLimit + 1)
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{MemoryLimitBytes: &huge}); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a limit of %d: %v", huge, err)
	}
	limit(d, 26<<20)
	d.stop()
	next := startDaemon(t, dir)
	if v := next.vm("a"); v.MemoryLimitBytes != 26<<20 {
		t.Errorf("the next daemon shows a limit of %d", v.MemoryLimitBytes)
	}
	alloc(second, 2<<20, false)
	limit(next, 0)
	alloc(second, 2<<20, true)
}
