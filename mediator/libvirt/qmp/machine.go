package qmp

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// dialLimit bounds a connection attempt.
const dialLimit = 5 * time.Second

// Driver is QEMU's device for a virtual GPU.
const Driver = "vfio-user-pci"

// classBridge is the PCI class of a bridge between PCI buses, such as a port.
const classBridge = 0x0604

// Identity identifies a VM. UUID is empty if it has none.
type Identity struct{ Name, UUID string }

// Machine describes a VM's PCI devices, as far as plugging needs.
type Machine struct {
	Ports []Port
	// Devices are the ids of all PCI devices that have one.
	Devices []string
}

// Port is a port that one device can be plugged into.
type Port struct {
	ID string
	// Device is the id of the plugged device, which may be empty.
	Device   string
	Occupied bool
	// Base and Room are the start and size, in bytes, of the addresses that the guest can assign to
	// prefetchable BARs behind the port.
	Base, Room uint64
}

// pciBus and the following types are QEMU's answer to query-pci.
type pciBus struct {
	Devices []pciDevice `json:"devices"`
}

type pciDevice struct {
	ID       string `json:"qdev_id"`
	Bus      int    `json:"bus"`
	Slot     int    `json:"slot"`
	Function int    `json:"function"`
	Class    struct {
		Class int `json:"class"`
	} `json:"class_info"`
	Ident struct {
		Vendor uint32 `json:"vendor"`
		Device uint32 `json:"device"`
	} `json:"id"`
	Bridge *struct {
		Bus struct {
			Prefetchable pciRange `json:"prefetchable_range"`
		} `json:"bus"`
		Devices []pciDevice `json:"devices"`
	} `json:"pci_bridge"`
	Regions []struct {
		BAR     int   `json:"bar"`
		Size    int64 `json:"size"`
		Address int64 `json:"address"` // -1: not mapped
	} `json:"regions"`
}

type pciRange struct {
	Base  uint64 `json:"base"`
	Limit uint64 `json:"limit"`
}

// walk calls f with every device, each port before the devices behind it.
func walk(devices []pciDevice, f func(*pciDevice)) {
	for i := range devices {
		f(&devices[i])
		if b := devices[i].Bridge; b != nil {
			walk(b.Devices, f)
		}
	}
}

// queryPCI lists the PCI devices.
func queryPCI(ctx context.Context, r Runner) ([]pciDevice, error) {
	var buses []pciBus
	if err := r.Run(ctx, "query-pci", nil, &buses); err != nil {
		return nil, err
	}
	var devices []pciDevice
	for _, b := range buses {
		devices = append(devices, b.Devices...)
	}
	return devices, nil
}

// Identify queries a VM's name and UUID. Each query takes milliseconds; with libvirt use
// [Monitor.Identity].
func Identify(ctx context.Context, r Runner) (Identity, error) {
	var name struct{ Name string }
	var uuid struct{ UUID string }
	if err := errors.Join(r.Run(ctx, "query-name", nil, &name), r.Run(ctx, "query-uuid", nil, &uuid)); err != nil {
		return Identity{}, err
	}
	id := Identity{Name: name.Name, UUID: uuid.UUID}
	if id.UUID == "00000000-0000-0000-0000-000000000000" {
		id.UUID = ""
	}
	return id, nil
}

// Inspect queries a VM's devices.
func Inspect(ctx context.Context, r Runner) (*Machine, error) {
	devices, err := queryPCI(ctx, r)
	if err != nil {
		return nil, err
	}
	var m Machine
	m.list(devices)
	return &m, nil
}

// checkDriver returns an error if QEMU doesn't know the device. QEMU's own error does not say since
// which version it would.
func checkDriver(ctx context.Context, r Runner) error {
	var types []struct{ Name string }
	if err := r.Run(ctx, "qom-list-types", map[string]any{"implements": Driver}, &types); err != nil || len(types) > 0 {
		return err
	}
	var version struct {
		QEMU struct{ Major, Minor int }
	}
	if err := r.Run(ctx, "query-version", nil, &version); err != nil {
		return err
	}
	return fmt.Errorf("the VM's QEMU, %d.%d, has no %s: want QEMU 10.1 or later, built with it", version.QEMU.Major, version.QEMU.Minor, Driver)
}

// list fills in ports and devices.
func (m *Machine) list(devices []pciDevice) {
	walk(devices, func(d *pciDevice) {
		if d.ID != "" {
			m.Devices = append(m.Devices, d.ID)
		}
		if d.Bridge == nil || d.Class.Class != classBridge || d.ID == "" {
			return
		}
		p := Port{ID: d.ID, Occupied: len(d.Bridge.Devices) > 0}
		if p.Occupied {
			p.Device = d.Bridge.Devices[0].ID
		}
		if w := d.Bridge.Bus.Prefetchable; w.Limit > w.Base {
			p.Base, p.Room = w.Base, w.Limit-w.Base+1
		}
		m.Ports = append(m.Ports, p)
	})
}

// Port chooses a free port with room for a BAR of that size: the preferred one, or else the one
// with the least sufficient room.
func (m *Machine) Port(bar2 uint64, preferred string) (Port, error) {
	var best *Port
	free, most := 0, Port{}
	for i := range m.Ports {
		p := &m.Ports[i]
		if p.Occupied {
			continue
		}
		free++
		if most.ID == "" || p.Room > most.Room {
			most = *p
		}
		if p.Room < bar2 {
			continue
		}
		if best == nil || p.ID == preferred || best.ID != preferred && p.Room < best.Room {
			best = p
		}
	}
	const advice = "`vgpuctl define` adds a spare port, from the next start on"
	switch {
	case best != nil:
		return *best, nil
	case free == 0:
		return Port{}, fmt.Errorf("no PCI Express port is free: %s", advice)
	default:
		return Port{}, fmt.Errorf("no space: port %s has room for %d MiB, and the virtual GPU's memory (BAR2) needs %d MiB; %s, or choose a smaller --bar2", most.ID, most.Room>>20, bar2>>20, advice)
	}
}
