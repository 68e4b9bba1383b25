package vgpu

import (
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/pci"
)

// newConfigSpace lays out the function's configuration space.
//
// There is no interrupt pin, because QEMU 11.1 unmaps every BAR at the first INTx, and no MSI-X,
// because QEMU 11.1.3 aborts when such a device is unplugged and 32 vectors suffice.
func newConfigSpace(cfg Config) (*pci.Space, error) {
	f := pci.Function{
		VendorID:          abi.VendorID,
		DeviceID:          abi.DeviceID,
		SubsystemVendorID: abi.SubsystemVendorID,
		SubsystemID:       abi.SubsystemID,
		Revision:          abi.RevisionID,
		Class:             abi.ClassCode,
		Extended:          true,
		PowerManagement:   true,
		Express:           &pci.Express{LinkSpeed: 4, LinkWidth: 16, FunctionReset: true},
		MSI:               &pci.MSI{Vectors: cfg.Vectors},
	}
	f.BARs[0] = pci.BAR{Size: abi.BAR0Size}
	f.BARs[2] = pci.BAR{Size: uint64(cfg.SharedBytes), Is64: true, Prefetchable: true}
	if cfg.hasEvents() {
		f.BARs[4] = pci.BAR{Size: abi.EventAreaBytes, Is64: true, Prefetchable: true}
	}
	return pci.New(f)
}

// writeConfig writes to the configuration space. A function level reset resets the device.
func (d *Device) writeConfig(offset uint64, p []byte) error {
	changed, err := d.config.Write(offset, p)
	if err != nil {
		return err
	}
	if changed&pci.ChangeFunctionReset != 0 {
		return d.Reset()
	}
	return nil
}
