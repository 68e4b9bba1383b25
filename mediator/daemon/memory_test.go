package daemon

import (
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
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
		page.Memory(slot, 0).Take(1 << 55)
	}
	if used := d.vm("a").MemoryUsedBytes; used != limit {
		t.Errorf("a page that lies: %d, want at most the limit, %d", used, limit)
	}
}
