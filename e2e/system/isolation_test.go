package system

import (
	"bytes"
	"testing"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// TestMemoryIsApart has contexts of one guest and of two use each other's addresses, by kernels and
// by copies. Each finds its own memory, zeroed, or an error.
func TestMemoryIsApart(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "none")
	dev := h.NewGuest(api.VMSpec{Name: "owner"})
	owner := contextOf(t, dev)
	const size = 1 << 20
	secret := bytes.Repeat([]byte("secret"), size/6+1)[:size]
	mem, err := owner.Alloc(ctx, size)
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.CopyIn(ctx, mem, secret); err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]*driver.Context{
		"a context of the same guest": contextOf(t, dev),
		"a context of another guest":  newContext(t, h, api.VMSpec{Name: "other"}),
	} {
		got := make([]byte, size)
		if err := other.CopyOut(ctx, got, mem); err == nil || !bytes.Equal(got, make([]byte, size)) {
			t.Errorf("%s copies another's memory: %v", name, err)
		}
		if err := other.CopyIn(ctx, mem, make([]byte, size)); err == nil {
			t.Errorf("%s copies to another's memory", name)
		}
		// Its own memory may have the same address; it is other memory, and zeroed.
		own, err := other.Alloc(ctx, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.CopyOut(ctx, got, own); err != nil || !bytes.Equal(got, make([]byte, size)) {
			t.Errorf("%s is given memory that was used before: %v", name, err)
		}
		if err := other.Free(ctx, own); err != nil {
			t.Fatal(err)
		}
		p, err := other.Own().Launch(ctx, function(t, other, badKernels, "poke"), one, one, 0, mem)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, name+"'s kernel at another's address", p.Wait(ctx), abi.StatusIllegalAddress)
	}
	got := make([]byte, size)
	if err := owner.CopyOut(ctx, got, mem); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("the owner's memory has changed (%v)", err)
	}
}
