package qmp

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"vgpud/clock"
)

// again is how long to wait before looking again for what the guest does, which
// nothing tells of.
const again = 10 * time.Millisecond

// Patience is how long QEMU waits for a device's reply before it forgets the request; where
// the reply comes after that, it breaks the connection for good, and ends at the guest's next
// reboot. Its own 5 s are too few for a reset that waits for executors whose GPU is stuck, or
// gives many gigabytes back.
const Patience = time.Minute

// ErrLeft is wrapped where the device may still be in the VM: QEMU 11.1 may end
// when the device's process does.
var ErrLeft = errors.New("the device may still be in the VM")

// Plug plugs a virtual GPU, whose process listens on a socket, into a port, and
// waits until the guest has given its memory an address. Where the guest does not
// do so before ctx ends, the device is taken out again and the error says why;
// it is [ErrLeft] too where that could not be seen to succeed.
func Plug(ctx context.Context, r Runner, c clock.Clock, id string, p Port, socket string) error {
	r = whole{r}
	err := r.Run(ctx, "device_add", map[string]any{
		"driver": Driver, "id": id, "bus": p.ID,
		"socket":        map[string]any{"path": socket, "type": "unix"},
		"x-msg-timeout": Patience.Milliseconds(),
	}, nil)
	added := err == nil
	if added {
		err = awaitAddress(ctx, r, c, id, p)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, errNoAddress) {
		err = noAddress(p)
	}
	if !added {
		if kerr := known(context.WithoutCancel(ctx), r); kerr != nil {
			err = kerr
		}
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackLimit)
	defer cancel()
	switch there, qerr := present(back, r, id); {
	case qerr != nil:
		return fmt.Errorf("%w; %w: %w", err, ErrLeft, qerr)
	case !there:
		return err
	case !added: // with its answer lost, or it is another's of that id
		return fmt.Errorf("%w; %w", err, ErrLeft)
	}
	if uerr := Unplug(back, r, c, id); uerr != nil {
		return fmt.Errorf("%w; %w: %w", err, ErrLeft, uerr)
	}
	return err
}

// present is whether the VM has a device of an id.
func present(ctx context.Context, r Runner, id string) (bool, error) {
	devices, err := queryPCI(ctx, r)
	there := false
	all(devices, func(d *pciDevice) { there = there || d.ID == id })
	return there, err
}

// commandLimit is how long QEMU may take for one command.
const commandLimit = 5 * time.Second

// whole runs commands to their end, whatever has come to its end meanwhile: one
// that is given up takes the connection with it, by which everything is to be
// taken back.
type whole struct{ Runner }

// Run implements [Runner].
func (w whole) Run(ctx context.Context, command string, args, result any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandLimit)
	defer cancel()
	return w.Runner.Run(ctx, command, args, result)
}

// takeBackLimit is how long a guest may take to let go of a device that it has
// not taken.
const takeBackLimit = 10 * time.Second

var errNoAddress = errors.New("the guest has given the device's memory no address")

// QEMU declares these addresses reserved, and so not for BARs, to a guest whose
// processor is AMD's with 40 or more address bits. With just 40 firmware puts
// ports' windows there.
const (
	hyperTransport    = 0xfd_0000_0000
	hyperTransportEnd = 0x100_0000_0000
)

func noAddress(p Port) error {
	if p.Base >= hyperTransport && p.Base < hyperTransportEnd {
		return fmt.Errorf("no space: port %s is at addresses (%#x) that a guest can't use, which has an AMD processor with 40 address bits: give it the host's (<maxphysaddr mode='passthrough'/>, QEMU's host-phys-bits=on), or 39", p.ID, p.Base)
	}
	return fmt.Errorf("no space: the guest has found no addresses for the virtual GPU's memory (BAR2) behind port %s, with room for %d MiB, or has no driver for PCI Express hot-plug; `vgpuctl define` adds a spare port, from the next start on", p.ID, p.Room>>20)
}

// awaitAddress waits until the guest has given BAR2 an address.
func awaitAddress(ctx context.Context, r Runner, c clock.Clock, id string, p Port) error {
	for {
		devices, err := queryPCI(ctx, r)
		if err != nil {
			return err
		}
		ok, err := placed(ctx, r, devices, id, p)
		if ok || err != nil {
			return err
		}
		if clock.Sleep(ctx, c, again) != nil {
			return errNoAddress
		}
	}
}

// placed is whether BAR2 of a device has an address. QEMU itself shows it once
// the guest's driver has the device decode addresses; before that the register
// does.
func placed(ctx context.Context, r Runner, devices []pciDevice, id string, p Port) (bool, error) {
	var dev *pciDevice
	var bridge *pciDevice // the host's, which is always at 00:00.0
	all(devices, func(d *pciDevice) {
		if d.ID == id {
			dev = d
		}
		if d.Bus == 0 && d.Slot == 0 && d.Function == 0 && bridge == nil {
			bridge = d
		}
	})
	if dev == nil {
		return false, fmt.Errorf("device %s has gone", id)
	}
	for _, region := range dev.Regions {
		if region.BAR == 2 && region.Address != -1 {
			return true, nil
		}
	}
	if bridge == nil {
		return false, nil
	}
	addr, err := register(ctx, r, bridge, dev)
	// The guest writes ones to learn its size, and has it be 0 at first.
	return p.Base <= addr && addr-p.Base < p.Room, err
}

// Where firmware has the guest's configuration space of PCI Express be, as
// SeaBIOS and OVMF do.
var configSpaces = []uint64{0xb000_0000, 0xe000_0000}

// register is the address in BAR2's register of a device; 0 is none.
func register(ctx context.Context, r Runner, bridge, dev *pciDevice) (uint64, error) {
	for _, base := range configSpaces {
		// Whether it is there, the host bridge's own identity tells.
		w, err := words(ctx, r, base, 1)
		if err != nil {
			return 0, err
		}
		if len(w) != 1 || w[0] != bridge.Ident.Vendor|bridge.Ident.Device<<16 {
			continue
		}
		at := base + uint64(dev.Bus)<<20 + uint64(dev.Slot)<<15 + uint64(dev.Function)<<12
		const bar2, flags = 0x10 + 2*4, 0xf
		if w, err = words(ctx, r, at+bar2, 2); err != nil || len(w) != 2 {
			return 0, err
		}
		return uint64(w[1])<<32 | uint64(w[0]&^flags), nil
	}
	return 0, nil
}

var hexWord = regexp.MustCompile(`0x([0-9a-fA-F]{8})\b`)

// words reads words of the guest's physical addresses; fewer, where there is
// nothing.
func words(ctx context.Context, r Runner, addr uint64, n int) ([]uint32, error) {
	var text string
	args := map[string]any{"command-line": fmt.Sprintf("xp /%dxw %#x", n, addr)}
	if err := r.Run(ctx, "human-monitor-command", args, &text); err != nil {
		return nil, err
	}
	var all []uint32
	for _, m := range hexWord.FindAllStringSubmatch(text, n) {
		w, err := strconv.ParseUint(m[1], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("decode %q: %w", text, err)
		}
		all = append(all, uint32(w))
	}
	return all, nil
}

// Unplug asks the guest to let go of a device and waits until it has.
func Unplug(ctx context.Context, r Runner, c clock.Clock, id string) error {
	r = whole{r}
	asked := false
	for {
		there, err := present(ctx, r, id)
		if err != nil {
			return err
		}
		if !there {
			if asked {
				return nil
			}
			return fmt.Errorf("the VM has no device %s", id)
		}
		if !asked {
			if err := r.Run(ctx, "device_del", map[string]any{"id": id}, nil); err != nil {
				return err
			}
			asked = true
		}
		if clock.Sleep(ctx, c, again) != nil {
			return fmt.Errorf("the guest does not let go of device %s: %w; is it up, and does it know PCI Express hot-plug?", id, context.Cause(ctx))
		}
	}
}
