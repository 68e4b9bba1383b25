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

// PCI configures how virtual GPUs that are PCI functions are found and opened. Its zero value is
// right for a guest.
type PCI struct {
	// Root is the file system that has /sys and /dev; "" means the machine's.
	Root string
	// Access selects how to reach the function.
	Access Access
	// Heartbeat is the interval at which a register is read to find out whether the device still
	// exists; 0 means one second.
	Heartbeat time.Duration
	// BusyTimeout is how long to wait for another process that has the device open: the agent opens
	// a new device while it checks it. 0 means 10 seconds; negative means not to wait.
	BusyTimeout time.Duration
	// Kernel gives access to vfio; nil means the machine's kernel.
	Kernel vfio.Kernel
}

// Access is a way to a PCI function.
type Access int

// Ways to reach a PCI function.
const (
	// AccessAny is vfio-pci if possible, and otherwise polling.
	AccessAny Access = iota
	// AccessVFIO is vfio-pci only: the device's interrupts are eventfds.
	AccessVFIO
	// AccessPolling maps the function's resources in sysfs. There are no interrupts: the driver
	// polls with growing pauses.
	AccessPolling
	// AccessAgent is a part of a device that vgpu-agent shares, reached as the agent reaches it. It
	// can't be requested: see [DialAgent].
	AccessAgent
)

// String returns the access's name.
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

// IDs are the virtual GPU's PCI IDs.
var IDs = sysfs.IDs{Vendor: abi.VendorID, Device: abi.DeviceID, Class: abi.ClassCode}

// Errors of opening a PCI function, besides fs.ErrPermission.
var (
	// ErrNoDevice means that there is no virtual GPU, or none at the given address.
	ErrNoDevice = errors.New("no virtual GPU")
	// ErrSeveral means that an address must be given.
	ErrSeveral = errors.New("several virtual GPUs")
	// ErrNoRoom means that the guest's kernel found no addresses for the virtual GPU's memory.
	ErrNoRoom = errors.New("the guest's kernel has no room for the virtual GPU's memory")
	// ErrBusy means that another process has the device open.
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

// find returns the function at an address, or the only one if address is empty.
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
		return sysfs.Function{}, fmt.Errorf("%w at %s: the function there is not %v", ErrNoDevice, address, IDs)
	}
	return sysfs.Function{}, fmt.Errorf("%w at %s: nothing is there", ErrNoDevice, address)
}

// CheckRoom checks that the guest's kernel gave the function's BARs addresses. If not, the error is
// [ErrNoRoom] with advice.
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

// OpenPCI opens the virtual GPU at a PCI address, or the only one if address is empty. Only one
// process can have it open; several share one through the agent ([DialAgent]).
//
// OpenPCI binds the function to vfio-pci, if this process may do so and it is not bound yet, and
// resets it. If vfio-pci can't be used, it maps the function's resources, and there are no
// interrupts; [PCIBus.Access] gives the reason.
func OpenPCI(ctx context.Context, p PCI, address string) (*PCIBus, error) {
	f, err := p.find(address)
	if err != nil {
		return nil, err
	}
	if err := CheckRoom(f); err != nil {
		return nil, err
	}
	// Otherwise the kernel would wait a minute for its reset.
	if !p.fs().Answers(f.Address) {
		return nil, fmt.Errorf("open %s: %w: it does not answer; the host's process is gone", f.Address, ErrGone)
	}
	patience := p.BusyTimeout
	if patience == 0 {
		patience = defaultBusyTimeout
	}
	again := time.NewTicker(busyRetry)
	defer again.Stop()
	for begin := time.Now(); ; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		b, err := p.open(f)
		if err == nil || !errors.Is(err, ErrBusy) || time.Since(begin) > patience {
			return b, err
		}
		select { // no event announces that another process has closed it
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// defaultBusyTimeout is how long to wait for another process, busyRetry how often to try.
const (
	defaultBusyTimeout = 10 * time.Second
	busyRetry          = 20 * time.Millisecond
)

// open opens a function in the best way that is possible.
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
	// vfio-pci may have been bound above without being usable.
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
	b.fallbackReason = why
	return b, nil
}

// Prepare binds the function to vfio-pci and returns it as it is then, with the path of the node to
// open. It needs root.
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
	d, err := vfio.Open(p.kernel(), vfio.Location{
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
	b.shared.place()
	if f.BARs[4].Bytes == abi.EventAreaBytes {
		if b.area.b, err = d.Map(vfio.RegionBAR4); err != nil {
			return nil, err
		}
	}
	if err := b.enableMSI(d); err != nil {
		return nil, err
	}
	if err := b.watchVFIO(d); err != nil {
		return nil, err
	}
	b.startHeartbeat(p.Heartbeat)
	return b, nil
}

// takeBack unbinds a function from vfio-pci, which suspends devices that are not open, so that it
// can be polled. It fails if a process has it open.
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
		return fmt.Errorf("check whether vfio has it open: %w", err)
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
				err = fmt.Errorf("%w: %w", ErrBusy, err) // claimed by a driver, such as vfio-pci
			}
			return nil, err
		}
		b.files = append(b.files, file)
	}
	b.shared.place()
	if f.BARs[4].Bytes == abi.EventAreaBytes {
		var file *os.File
		if b.area, file, err = mapFile(p.fs().ResourcePath(f.Address, 4), abi.EventAreaBytes); err != nil {
			return nil, err
		}
		b.closers = append(b.closers, file)
		b.eventFile = file
	}
	if err := unix.Flock(int(b.files[0].Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, fmt.Errorf("lock the function: %w", err)
	}
	// The state that the device's last user left must go; vfio resets the device itself.
	if err := b.Write(abi.RegReset, abi.ResetMagic); err != nil {
		return nil, err
	}
	if p.Root == "" {
		b.watchUevents()
	}
	b.startHeartbeat(p.Heartbeat)
	return b, nil
}
