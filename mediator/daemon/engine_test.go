package daemon

import (
	"errors"
	"testing"

	"vgpud/internal/proctest"
	"vgpud/mediator/api"
)

// TestEngine: which engine placed a guest is known as long as the guest lives, over restarts of the
// daemon, and of a guest that does not answer. Otherwise the guest's part of a GPU would be sold
// twice.
func TestEngine(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	if _, err := d.client.CreateVM(t.Context(), api.VMSpec{Name: "x", BAR2Bytes: 16 << 20, Engine: "no va"}); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("an engine with a space: %v", err)
	}
	v := d.createVM(api.VMSpec{Name: "placed", BAR2Bytes: 16 << 20, Engine: "nova"})
	d.create("local")
	d.stop()
	d = startDaemon(t, dir)
	if placed, local := d.vm("placed").Engine, d.vm("local").Engine; v.Engine != "nova" || placed != "nova" || local != "" {
		t.Errorf("engines at first %q, after a restart %q, of another guest %q", v.Engine, placed, local)
	}
	d.stop()
	proctest.Stop(t, v.PID)
	d = startDaemonAtOnce(t, dir)
	until(t, "the guest is shown, and its engine", func() bool {
		v := d.vm("placed")
		return v.Silent != "" && v.Engine == "nova"
	})
}
