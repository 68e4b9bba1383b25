package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/sysfs"
	"vgpud/guestagent/vfio"
	"vgpud/mediator/vgpu/abi"
)

// PCI says how virtual GPUs that are PCI functions are found and reached. Its zero
// value is right for a guest.
type PCI struct {
	// Root is the file system that /sys and /dev lie in; "" is the machine's.
	Root string
	// Access is which way to take.
	Access Access
	// Heartbeat is how often the device is asked whether it still is there; 0: every
	// second.
	Heartbeat time.Duration
	// Patience is for how long to wait for another process that has the device: the
	// agent has one that comes for as long as it checks it. 0: 10 seconds; negative:
	// not at all.
	Patience time.Duration
	// Kernel is how vfio is spoken to; nil: by the machine's.
	Kernel vfio.Kernel
}

// Access is a way to a PCI function.
type Access int

// The ways.
const (
	// AccessAny is vfio-pci where it can be had, else polling.
	AccessAny Access = iota
	// AccessVFIO is vfio-pci alone: the device's interrupts as eventfds.
	AccessVFIO
	// AccessPolling maps the function's resources in sysfs. There are no interrupts:
	// the driver polls, with growing pauses.
	AccessPolling
	// AccessAgent is a part of a device that vgpu-agent shares, reached as the agent
	// reaches it. It is not to be asked for: see [DialAgent].
	AccessAgent
)

// String is the access's name.
func (a Access) String() string {
	switch a {
	case AccessAny:
		return "any"
	case AccessVFIO:
		return "vfio"
	case AccessPolling:
		return "polling"
	case AccessAgent:
		return "agent"
	}
	return fmt.Sprintf("access %d", int(a))
}

// IDs are the virtual GPU's.
var IDs = sysfs.IDs{Vendor: abi.VendorID, Device: abi.DeviceID, Class: abi.ClassCode}

// Errors that opening a PCI function ends with, besides fs.ErrPermission.
var (
	// ErrNoDevice says that there is no virtual GPU, or none at that address.
	ErrNoDevice = errors.New("no virtual GPU")
	// ErrSeveral says that one must be named.
	ErrSeveral = errors.New("several virtual GPUs")
	// ErrNoRoom says that the guest's kernel found no addresses for the memory of the
	// virtual GPU.
	ErrNoRoom = errors.New("the guest's kernel has no room for the virtual GPU's memory")
	// ErrBusy says that another process has the device.
	ErrBusy = vfio.ErrBusy
)

// Functions returns all virtual GPUs, by address.
func (p PCI) Functions() ([]sysfs.Function, error) { return p.fs().Functions(IDs) }

func (p PCI) fs() sysfs.FS { return sysfs.FS{Root: p.Root} }

func (p PCI) kernel() vfio.Kernel {
	if p.Kernel == nil {
		return vfio.Linux{}
	}
	return p.Kernel
}

// find returns the function at an address, or the only one when address is empty.
func (p PCI) find(address string) (sysfs.Function, error) {
	all, err := p.Functions()
	if err != nil {
		return sysfs.Function{}, err
	}
	if address == "" {
		switch len(all) {
		case 0:
			return sysfs.Function{}, fmt.Errorf("%w: no PCI function is %v; does the VM have one?", ErrNoDevice, IDs)
		case 1:
			return all[0], nil
		}
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Address
		}
		return sysfs.Function{}, fmt.Errorf("%w: name one of %s", ErrSeveral, strings.Join(names, ", "))
	}
	for _, f := range all {
		if f.Address == address || f.Address == "0000:"+address {
			return f, nil
		}
	}
	if p.fs().Present(address) {
		return sysfs.Function{}, fmt.Errorf("%w at %s: what is there is not %v", ErrNoDevice, address, IDs)
	}
	return sysfs.Function{}, fmt.Errorf("%w at %s: nothing is there", ErrNoDevice, address)
}

// CheckRoom tells whether the guest's kernel gave the function's BARs addresses; the
// error is [ErrNoRoom] with what to do about it.
func CheckRoom(f sysfs.Function) error {
	if f.BARs[0].Bytes == 0 {
		return fmt.Errorf("%s: %w (BAR0): give its port more memory below 4 GiB (mem-reserve)", f.Address, ErrNoRoom)
	}
	if f.BARs[2].Bytes == 0 {
		return fmt.Errorf("%s: %w (BAR2): plug it into a port with room for twice BAR2, such as "+
			"-device pcie-root-port,pref64-reserve=512M, or give it to the VM before it starts", f.Address, ErrNoRoom)
	}
	if f.BARs[0].Bytes != abi.BAR0Size {
		return fmt.Errorf("%s: BAR0 has %d bytes, want %d", f.Address, f.BARs[0].Bytes, abi.BAR0Size)
	}
	return nil
}

// OpenPCI opens the virtual GPU at a PCI address, or the only one when address is
// empty. Only one process can have it open; several share one by way of the agent
// ([DialAgent]).
//
// Through vfio-pci the function gets bound to that driver, where this process may do
// so and nobody has yet, and is reset. Where vfio-pci can't be had the function's
// resources are mapped and there are no interrupts; [PCIBus.Access] says why.
func OpenPCI(ctx context.Context, p PCI, address string) (*PCIBus, error) {
	f, err := p.find(address)
	if err != nil {
		return nil, err
	}
	if err := CheckRoom(f); err != nil {
		return nil, err
	}
	// The kernel would wait a minute for its reset.
	if !p.fs().Answers(f.Address) {
		return nil, fmt.Errorf("open %s: %w: it does not answer; the host's process is gone", f.Address, ErrGone)
	}
	patience := p.Patience
	if patience == 0 {
		patience = defaultPatience
	}
	again := time.NewTicker(busyPause)
	defer again.Stop()
	for begin := time.Now(); ; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		b, err := p.open(f)
		if err == nil || !errors.Is(err, ErrBusy) || time.Since(begin) > patience {
			return b, err
		}
		select { // nothing tells when it is let go of
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// How long to wait for another process, and how often to look.
const (
	defaultPatience = 10 * time.Second
	busyPause       = 20 * time.Millisecond
)

// open opens a function by the best way there is.
func (p PCI) open(f sysfs.Function) (*PCIBus, error) {
	var why error
	if p.Access != AccessPolling {
		var b *PCIBus
		if b, why = p.openVFIO(f); why == nil {
			return b, nil
		}
		if p.Access == AccessVFIO || errors.Is(why, ErrBusy) {
			return nil, fmt.Errorf("open %s: %w", f.Address, why)
		}
	}
	// vfio-pci may have it since, and not have been of use.
	f, err := p.fs().Function(f.Address)
	var b *PCIBus
	if err == nil {
		b, err = p.openPolling(f)
	}
	if err != nil {
		if why != nil {
			err = fmt.Errorf("%w (and by vfio: %w)", err, why)
		}
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w; run as root, or let vgpu-agent open it to a group", err)
		}
		return nil, fmt.Errorf("open %s: %w", f.Address, err)
	}
	b.why = why
	return b, nil
}

// Prepare binds the function to vfio-pci and returns it as it is then, with the node
// by which it is opened. It needs root.
func (p PCI) Prepare(address string) (f sysfs.Function, node string, err error) {
	if err := p.fs().Bind(address); err != nil {
		return f, "", fmt.Errorf("prepare %s: %w", address, err)
	}
	if f, err = p.fs().Function(address); err != nil {
		return f, "", fmt.Errorf("prepare %s: %w", address, err)
	}
	if node = p.fs().GroupPath(f); node == "" {
		return f, "", fmt.Errorf("prepare %s: vfio-pci has it, but it has no IOMMU group", address)
	}
	return f, node, nil
}

func (p PCI) openVFIO(f sysfs.Function) (_ *PCIBus, err error) {
	f, group, err := p.Prepare(f.Address)
	if err != nil {
		return nil, err
	}
	d, err := vfio.Open(p.kernel(), vfio.Where{
		Container: p.fs().Path("/dev/vfio/vfio"), Group: group, NoIOMMU: f.NoIOMMU, Address: f.Address,
	})
	if err != nil {
		return nil, err
	}
	b := p.newBus(f.Address, AccessVFIO)
	b.vfio = d
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.registers.b, err = d.Map(vfio.RegionBAR0); err != nil {
		return nil, err
	}
	if b.shared.b, err = d.Map(vfio.RegionBAR2); err != nil {
		return nil, err
	}
	if err := b.enableMSI(d); err != nil {
		return nil, err
	}
	if err := b.watchVFIO(d); err != nil {
		return nil, err
	}
	b.watchBeat(p.Heartbeat)
	return b, nil
}

// takeBack takes a function from vfio-pci, which sleeps while nobody has it open, to
// poll it.
func (p PCI) takeBack(f sysfs.Function) error {
	node := p.fs().GroupPath(f)
	fd, err := p.kernel().Open(node)
	if errors.Is(err, unix.EBUSY) {
		return ErrBusy
	}
	if err == nil {
		err = p.kernel().Close(fd)
	}
	if err != nil {
		return fmt.Errorf("ask who has it by vfio: %w", err)
	}
	return p.fs().Unbind(f.Address)
}

func (p PCI) openPolling(f sysfs.Function) (_ *PCIBus, err error) {
	if f.Driver != "" && f.Driver != sysfs.VFIODriver {
		return nil, fmt.Errorf("kernel driver %s has it", f.Driver)
	}
	b := p.newBus(f.Address, AccessPolling)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if f.Driver == sysfs.VFIODriver {
		if err := p.takeBack(f); err != nil {
			return nil, err
		}
	}
	if err := p.fs().Enable(f.Address); err != nil {
		return nil, err
	}
	for _, r := range []struct {
		bar   int
		bytes uint64
		m     *mapping
	}{{0, abi.BAR0Size, &b.registers}, {2, f.BARs[2].Bytes, &b.shared}} {
		var file *os.File
		if *r.m, file, err = mapFile(p.fs().ResourcePath(f.Address, r.bar), r.bytes); err != nil {
			if errors.Is(err, unix.EINVAL) {
				err = fmt.Errorf("%w: %w", ErrBusy, err) // a driver, such as vfio-pci, has claimed it
			}
			return nil, err
		}
		b.files = append(b.files, file)
	}
	if err := unix.Flock(int(b.files[0].Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, fmt.Errorf("lock the function: %w", err)
	}
	// What the last user of the device left is not ours; vfio resets by itself.
	if err := b.Write(abi.RegReset, abi.ResetMagic); err != nil {
		return nil, err
	}
	if p.Root == "" {
		b.watchUevents()
	}
	b.watchBeat(p.Heartbeat)
	return b, nil
}
