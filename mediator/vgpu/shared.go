package vgpu

import (
	"errors"
	"fmt"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"vgpud/internal/memfd"
	"vgpud/mediator/vgpu/abi"
)

// shared is BAR2: a memfd, of which this process maps only the header, where the guest reads
// states.
type shared struct {
	file   *os.File
	bytes  int64
	header []byte
}

// newShared creates BAR2's memory, zeroed and sealed against a change of size: the VMM holds the
// descriptor too, and a process that touches a page beyond a shrunk file's end dies.
func newShared(cfg Config, generation uint32) (*shared, error) {
	file, header, err := newBAR("vgpu-bar2", cfg.SharedBytes, abi.HeaderBytes(cfg.Channels))
	if err != nil {
		return nil, err
	}
	s := &shared{file: file, bytes: cfg.SharedBytes, header: header}
	s.init(generation)
	return s, nil
}

// newBAR creates the memory of a region, zeroed and sealed, and maps its first bytes.
func newBAR(name string, bytes int64, mapped int) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("create %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(bytes); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("size %s to %d bytes: %w", name, bytes, err), f.Close())
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("seal %s: %w", name, err), f.Close())
	}
	m, err := unix.Mmap(fd, 0, mapped, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("map the first %d bytes of %s: %w", mapped, name, err), f.Close())
	}
	return f, m, nil
}

// init writes the device's page of fresh memory.
func (s *shared) init(generation uint32) {
	abi.StoreWord(s.header, abi.DeviceMagicWord, abi.Magic)
	abi.StoreWord(s.header, abi.DeviceGenerationWord, generation)
}

// clear frees all pages, for guests that keep their mapping over a reset.
func (s *shared) clear(generation uint32) error {
	if err := clearBAR(s.file, s.bytes); err != nil {
		return err
	}
	s.init(generation)
	return nil
}

// clearBAR zeroes a region, by freeing all of its pages.
func clearBAR(f *os.File, bytes int64) error {
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, bytes); err != nil {
		return fmt.Errorf("clear %s: %w", f.Name(), err)
	}
	return nil
}

// publish writes the words that are out of date.
func (s *shared) publish(r *registers, d *dirty) {
	for i, pages := range d.pages {
		for ; pages != 0; pages &= pages - 1 {
			page := abi.ChannelPage(i*64 + bits.TrailingZeros64(pages))
			abi.ResetChannelPage(s.header[page : page+abi.PageSize])
		}
	}
	for i, set := range d.channels {
		for ; set != 0; set &= set - 1 {
			slot := i*64 + bits.TrailingZeros64(set)
			c := &r.channels[slot]
			abi.StoreWord(s.header, abi.ChannelPage(slot)+abi.ChannelStateWord, abi.PackState(c.state, c.err))
		}
	}
	for set := d.contexts; set != 0; set &= set - 1 {
		slot := bits.TrailingZeros64(set)
		c := &r.contexts[slot]
		abi.StoreWord(s.header, abi.ContextWord(slot), abi.PackState(c.state, c.err))
	}
	abi.AddWord(s.header, abi.DeviceStateWord, 1)
}

// close gives the memory up. It lives on as long as others map it.
func (s *shared) close() error {
	var err error
	if s.header != nil {
		err = unix.Munmap(s.header)
		s.header = nil
	}
	return errors.Join(err, s.file.Close())
}
