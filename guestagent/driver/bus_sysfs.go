package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"vgpud/mediator/vgpu/abi"
)

// Sysfs is a system's PCI devices as the kernel shows them under Root, by default
// /sys.
type Sysfs struct{ Root string }

// Functions returns the addresses of all virtual GPUs, such as "0000:00:10.0".
func (s Sysfs) Functions() ([]string, error) {
	dir := filepath.Join(s.root(), "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list PCI functions: %w", err)
	}
	var found []string
	for _, e := range entries {
		match := true
		for _, want := range []struct {
			file  string
			value uint64
		}{{"vendor", abi.VendorID}, {"device", abi.DeviceID}, {"class", abi.ClassCode}} {
			got, err := readHex(filepath.Join(dir, e.Name(), want.file))
			if errors.Is(err, os.ErrNotExist) {
				match = false // unplugged just now
				break
			}
			if err != nil {
				return nil, err
			}
			match = match && got == want.value
		}
		if match {
			found = append(found, e.Name())
		}
	}
	return found, nil
}

func (s Sysfs) root() string {
	if s.Root == "" {
		return "/sys"
	}
	return s.Root
}

func readHex(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// OpenSysfs opens the virtual GPU at a PCI address, or the only one when address is
// empty. It needs the right to map the function's resources, and no kernel driver.
// There are no interrupts this way: the driver polls, with growing pauses.
func OpenSysfs(s Sysfs, address string) (Bus, error) {
	if address == "" {
		all, err := s.Functions()
		if err != nil {
			return nil, err
		}
		if len(all) != 1 {
			return nil, fmt.Errorf("%d virtual GPUs under %s: %v; name one", len(all), s.root(), all)
		}
		address = all[0]
	}
	dir := filepath.Join(s.root(), "bus/pci/devices", filepath.Base(address))
	if err := enable(filepath.Join(dir, "enable")); err != nil {
		return nil, err
	}
	b := &sysfsBus{}
	var err error
	if b.registers, err = mapFile(filepath.Join(dir, "resource0"), abi.BAR0Size); err != nil {
		return nil, err
	}
	if b.shared, err = mapFile(filepath.Join(dir, "resource2"), 0); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// enable turns on the function's memory decoding unless it is on: writing counts up.
func enable(path string) error {
	on, err := readHex(path)
	if err == nil && on == 0 {
		err = os.WriteFile(path, []byte("1"), 0)
	}
	if err != nil {
		return fmt.Errorf("enable the PCI function: %w", err)
	}
	return nil
}

// mapFile maps a resource of the given size, or of its own size when 0.
func mapFile(path string, size int64) (b []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("map a BAR: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("map a BAR: %w", err)
	}
	if size == 0 {
		size = st.Size()
	}
	if st.Size() != size || size == 0 {
		return nil, fmt.Errorf("map a BAR: %s has %d bytes, want %d", path, st.Size(), size)
	}
	if b, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return b, nil
}

// sysfsBus is a PCI function that user space maps.
type sysfsBus struct {
	mu        sync.RWMutex // keeps Close from registers in use: a late doorbell must not touch what is unmapped
	registers []byte
	shared    []byte
}

func (b *sysfsBus) Read(offset uint32) (uint32, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if uint64(offset)+4 > uint64(len(b.registers)) {
		return 0, ErrClosed
	}
	return abi.LoadWord(b.registers, int(offset)), nil
}

func (b *sysfsBus) Write(offset, value uint32) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if uint64(offset)+4 > uint64(len(b.registers)) {
		return ErrClosed
	}
	// A plain store: an exchange, as Go's atomic store is on x86, would be a read
	// and a write to a trapped region, and emulators differ about it.
	binary.LittleEndian.PutUint32(b.registers[offset:offset+4], value)
	return nil
}

func (b *sysfsBus) Doorbell(offset uint32) error { return b.Write(offset, 0) }
func (b *sysfsBus) Shared() []byte               { return b.shared }
func (b *sysfsBus) Vectors() int                 { return 0 }
func (b *sysfsBus) Done() <-chan struct{}        { return nil }

func (b *sysfsBus) Wait(context.Context, int) error {
	return errors.New("a PCI function in sysfs has no interrupts for user space")
}

func (b *sysfsBus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	for _, m := range []*[]byte{&b.registers, &b.shared} {
		if *m != nil {
			err = errors.Join(err, unix.Munmap(*m))
			*m = nil
		}
	}
	return err
}
