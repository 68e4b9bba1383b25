package vfiouser_test

import (
	"net"
	"testing"

	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// qemuStep is one message of QEMU 11.1.3, with the observed sizes of the message and of its reply
// (-1 for any). A pipelined message is sent before the reply to the previous one has arrived.
type qemuStep struct {
	name      string
	cmd       uint16
	payload   []byte
	size      int
	reply     int
	fds       int // sent with it
	replyFDs  int
	pipelined bool
}

// qemuAttach returns what QEMU sends to a device with BAR0 trapped, BAR2 mapped, BAR4 mapped in
// part, MSI and 256 bytes of configuration space.
func qemuAttach() []qemuStep {
	steps := []qemuStep{
		{name: "version", cmd: vfiouser.CmdVersion, payload: []byte(qemuVersion), size: 214, reply: -1},
		{name: "map RAM", cmd: vfiouser.CmdDMAMap, payload: dmaMap(3, 0, 0, 256<<20), size: 48, reply: 16, fds: 1},
		{name: "map BIOS", cmd: vfiouser.CmdDMAMap, payload: dmaMap(1, 0, 0xfffc0000, 0x40000), size: 48, reply: 16, pipelined: true},
		{name: "device info", cmd: vfiouser.CmdDeviceGetInfo, payload: enc(&vfiouser.DeviceInfo{Argsz: 16}), size: 32, reply: 32},
	}
	info := func(index, argsz uint32, reply, fds int) {
		steps = append(steps, qemuStep{name: "region info", cmd: vfiouser.CmdDeviceGetRegionInfo,
			payload: enc(&vfiouser.RegionInfo{Argsz: argsz, Index: index}), size: 48, reply: reply, replyFDs: fds})
	}
	info(0, 32, 48, 0)
	info(1, 32, 48, 0)
	info(2, 32, 48, 1)
	info(3, 32, 48, 0)
	info(4, 32, 48, 0)
	info(4, 80, 96, 1)
	info(5, 32, 48, 0)
	info(7, 32, 48, 0)
	irqInfo := func(index uint32) {
		steps = append(steps, qemuStep{name: "interrupt info", cmd: vfiouser.CmdDeviceGetIRQInfo,
			payload: enc(&vfiouser.IRQInfo{Argsz: 16, Index: index}), size: 32, reply: 32})
	}
	read := func(offset uint64, n uint32) {
		steps = append(steps, qemuStep{name: "config read", cmd: vfiouser.CmdRegionRead,
			payload: access(vfiouser.RegionConfig, offset, n), size: 32, reply: 32 + int(n)})
	}
	write := func(offset uint64, data ...byte) {
		steps = append(steps, qemuStep{name: "config write", cmd: vfiouser.CmdRegionWrite,
			payload: access(vfiouser.RegionConfig, offset, uint32(len(data)), data...), size: 32 + len(data), reply: 32})
	}
	set := func(payload []byte, fds int) {
		steps = append(steps, qemuStep{name: "set interrupts", cmd: vfiouser.CmdDeviceSetIRQs, payload: payload, size: 36, reply: 16, fds: fds})
	}
	reset := func() {
		steps = append(steps, qemuStep{name: "reset", cmd: vfiouser.CmdDeviceReset, size: 16, reply: 16})
		read(0x3d, 1)
		for bar := uint64(0x10); bar <= 0x24; bar += 4 {
			write(bar, 0, 0, 0, 0)
		}
	}
	remap := func() {
		steps = append(steps,
			qemuStep{name: "unmap RAM", cmd: vfiouser.CmdDMAUnmap, payload: dmaUnmap(0, 0, 256<<20), size: 40, reply: 40},
			qemuStep{name: "map low RAM", cmd: vfiouser.CmdDMAMap, payload: dmaMap(3, 0, 0, 0xa0000), size: 48, reply: 16, fds: 1},
			qemuStep{name: "map high RAM", cmd: vfiouser.CmdDMAMap, payload: dmaMap(3, 0x100000, 0x100000, 255<<20), size: 48, reply: 16, fds: 1, pipelined: true},
			qemuStep{name: "map the device's BAR", cmd: vfiouser.CmdDMAMap, payload: dmaMap(3, 0, 0xf8000000, 1<<20), size: 48, reply: 16, pipelined: true},
		)
	}

	irqInfo(vfiouser.IRQErr)
	read(0, 256)
	read(0x30, 4)
	write(0x30, 0xff, 0xf8, 0xff, 0xff)
	read(0x30, 4)
	write(0x30, 0, 0, 0, 0)
	for bar := uint64(0x10); bar <= 0x24; bar += 4 {
		read(bar, 4)
	}
	irqInfo(vfiouser.IRQMSI)
	read(0x3d, 1)
	set(irqSet(event|trigger, vfiouser.IRQErr, 0, 1), 1)
	read(4, 2)
	write(4, 0, 0)
	reset()
	remap()

	// The guest's driver enables MSI; QEMU sets all vectors at once, and later disables them.
	set(irqSet(event|trigger, vfiouser.IRQMSI, 0, 16), 16)
	set(irqSet(none|trigger, vfiouser.IRQMSI, 0, 0), 0)

	// system_reset: the socket and the mapped files stay.
	read(4, 2)
	write(4, 0, 0)
	steps = append(steps, qemuStep{name: "unmap the device's BAR", cmd: vfiouser.CmdDMAUnmap, payload: dmaUnmap(0, 0xf8000000, 1<<20), size: 40, reply: 40})
	reset()
	remap()
	return steps
}

// pciDevice is a device in memory with a real configuration space.
type pciDevice struct {
	*vfiousertest.Device
	config *pci.Space
}

func newPCIDevice(t testing.TB) *pciDevice {
	t.Helper()
	config, err := pci.New(pci.Function{
		VendorID: 0x1f5a, DeviceID: 1, Class: 0x120000,
		BARs: [pci.NumBARs]pci.BAR{
			0: {Size: 64 << 10},
			2: {Size: 1 << 20, Is64: true, Prefetchable: true},
			4: {Size: 64 << 10},
		},
		PowerManagement: true,
		Express:         &pci.Express{},
		MSI:             &pci.MSI{Vectors: 32},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &pciDevice{Device: gpuLike(t), config: config}
	memory := &vfiousertest.Device{Desc: d.Desc}
	d.OnRead = func(region uint32, offset uint64, p []byte) error {
		if region == vfiouser.RegionConfig {
			return d.config.Read(offset, p)
		}
		return memory.RegionRead(region, offset, p)
	}
	d.OnWrite = func(region uint32, offset uint64, p []byte) error {
		if region == vfiouser.RegionConfig {
			_, err := d.config.Write(offset, p)
			return err
		}
		return memory.RegionWrite(region, offset, p)
	}
	d.OnReset = func() error {
		d.config.Reset()
		return nil
	}
	d.OnDetach = func(*vfiouser.Session) { d.config.Reset() }
	return d
}

func TestQEMUAttaches(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := newPCIDevice(t)
	srv := &vfiouser.Server{Device: dev}
	path, _ := serveAt(t, srv)
	// QEMU disconnects without notice. The next one finds the device in its initial state.
	for range 3 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		replayQEMU(t, vfiousertest.NewRaw(t, c.(*net.UnixConn)), qemuAttach())
		c.Close()
	}
	if s := srv.Stats(); s.Errors != 0 || s.Clients != 3 || s.Refused != 0 || s.Broken != 0 {
		t.Errorf("counts %+v", s)
	}
}

func replayQEMU(t *testing.T, r *vfiousertest.Raw, steps []qemuStep) {
	t.Helper()
	files := newQEMUFiles(t)
	type sent struct {
		qemuStep
		id uint16
	}
	var outstanding []sent
	collect := func() {
		t.Helper()
		for _, s := range outstanding {
			m := r.Reply(s.cmd, s.id)
			if m.Errno != 0 || s.reply >= 0 && int(m.Size) != s.reply || len(m.FDs) != s.replyFDs {
				t.Fatalf("%s: error %d, %d bytes, %d descriptors; want %d bytes, %d descriptors",
					s.name, m.Errno, m.Size, len(m.FDs), s.reply, s.replyFDs)
			}
			if s.cmd == vfiouser.CmdDMAUnmap && string(m.Payload) != string(s.payload) {
				t.Fatalf("%s: the reply does not echo the request", s.name)
			}
		}
		outstanding = nil
	}
	for _, s := range steps {
		if n := len(s.payload) + vfiouser.SizeofHeader; n != s.size {
			t.Fatalf("%s: QEMU's message has %d bytes, this one %d", s.name, s.size, n)
		}
		if !s.pipelined {
			collect()
		}
		outstanding = append(outstanding, sent{s, r.Send(s.cmd, vfiouser.FlagTypeCommand, s.payload, files.of(&s)...)})
	}
	collect()
}
