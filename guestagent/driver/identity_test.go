package driver_test

import (
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// TestHostOf1_1 checks that this driver works with a host of version 1.1: what that does not offer is
// refused here, and never sent, and the attributes are those that it answers.
func TestHostOf1_1(t *testing.T) {
	_, dev, gpu := open(t, drivertest.Options{Version1_1: true, Features: abi.AllFeatures})
	info := dev.Info()
	if info.Version != abi.Version1_1 || info.Features&^drivertest.Features1_1 != 0 || info.UUID != [abi.UUIDBytes]byte{} {
		t.Errorf("Info = %+v", info)
	}
	all := must[[abi.DeviceAttributes]int32](t)(gpu.DeviceAttributes(t.Context()))
	if all[abi.DeviceSMs] != drivertest.SMs || all[abi.DeviceComputeMajor] != 9 {
		t.Errorf("%d SMs of capability %d", all[abi.DeviceSMs], all[abi.DeviceComputeMajor])
	}
	p := must[driver.Ptr](t)(gpu.Alloc(t.Context(), 100))
	if err := gpu.Free(t.Context(), p); err != nil {
		t.Error(err)
	}
}
