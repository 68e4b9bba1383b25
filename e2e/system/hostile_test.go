package system

import (
	"testing"

	"vgpud/e2e/host"
	"vgpud/e2e/mischief"
	"vgpud/mediator/api"
)

// TestHostileGuest has a guest, or its VMM, do each of many hostile things while another guest
// works, and then kills it. The other's results stay right, nothing is left behind, and the virtual
// GPU serves the next client.
func TestHostileGuest(t *testing.T) {
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	v, err := h.Client.CreateVM(t.Context(), api.VMSpec{Name: "culprit", BAR2Bytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	before := h.Footprint(v.Name, by.gpu)
	for _, mode := range mischief.Modes() {
		t.Run(mode, func(t *testing.T) {
			c := newAttacker(t, mode, v.Socket)
			// A guest that never leaves the GPU can't be suspended: on a GPU without preemption the
			// bystander waits for it, which only a time limit bounds.
			if mode != "endless kernel" {
				by.goesOn()
			}
			c.kill()
			by.goesOn()
			h.Until("the end of all that the guest had", func() error {
				return before.LeftBehind(h.Footprint(v.Name, by.gpu))
			})
			dev := h.Attach(v.Socket)
			works(t, contextOf(t, dev))
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
			h.Until("the end of all that the next guest had", func() error {
				return before.LeftBehind(h.Footprint(v.Name, by.gpu))
			})
		})
	}
}
