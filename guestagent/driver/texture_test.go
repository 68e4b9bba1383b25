package driver_test

import (
	"errors"
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// On a host of version 1.1 there are neither arrays nor textures, and nothing is sent.
func TestNoTexturesOn1_1(t *testing.T) {
	_, _, gpu := open(t, drivertest.Options{Version1_1: true, Features: abi.AllFeatures})
	ctx := t.Context()
	_, array := gpu.NewArray(ctx, driver.ArrayShape{Width: 1, Format: 1, Channels: 1})
	_, texture := gpu.NewTexture(ctx, driver.TextureMemory{}, driver.Sampling{})
	_, surface := gpu.NewSurface(ctx, new(driver.Array))
	for what, err := range map[string]error{
		"an array": array, "a texture": texture, "a surface": surface,
		"a binding": gpu.Own().Bind(ctx, new(driver.Module), "x", new(driver.Texture)),
	} {
		if !errors.Is(err, abi.StatusNotSupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
