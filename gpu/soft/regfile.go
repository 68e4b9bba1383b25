package soft

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/accounting/nvreg"
	"vgpud/internal/memfd"
)

// The addresses of the soft GPU's registers. A reader finds them through the device table, as on
// hardware, and must not depend on these.
const (
	graphicsRunlist = 0x00c00000
	copyRunlist     = 0x00c40000
	channelEntries  = 0x00c80000
	copyEntries     = 0x00c90000
	log2Channels    = 11
)

// regFile is the register page: a sparse file of the size of BAR0, of which a few pages exist.
type regFile struct {
	fd   *os.File
	mem  []byte
	file nvreg.File
	list nvreg.Runlist
}

func newRegFile(now time.Duration) (*regFile, error) {
	fd, err := unix.MemfdCreate("vgpud-soft-registers", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create the register file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "vgpud-soft-registers")
	if err := f.Truncate(nvreg.Size); err != nil {
		return nil, closing(f, fmt.Errorf("size the register file: %w", err))
	}
	mem, err := unix.Mmap(fd, 0, nvreg.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, closing(f, fmt.Errorf("map the register file: %w", err))
	}
	// The mapping above stays writable. Other holders of the file can only read it.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, memfd.Seals|unix.F_SEAL_FUTURE_WRITE); err != nil {
		_ = unix.Munmap(mem)
		return nil, closing(f, fmt.Errorf("seal the register file: %w", err))
	}
	file, err := nvreg.NewFile(mem)
	if err != nil {
		_ = unix.Munmap(mem)
		return nil, closing(f, err)
	}
	file.Store(graphicsRunlist+nvreg.RunlistChannelConfig,
		nvreg.ChannelConfig{Log2Channels: log2Channels, Base: channelEntries}.Encode())
	file.Store(copyRunlist+nvreg.RunlistChannelConfig,
		nvreg.ChannelConfig{Log2Channels: log2Channels, Base: copyEntries}.Encode())
	file.StoreDevices([]nvreg.Device{
		{Type: nvreg.DeviceCopy, IsEngine: true, FaultID: 15, ResetID: 6, PRIBase: 0x104000, RunlistBase: copyRunlist},
		{Type: nvreg.DeviceGraphics, IsEngine: true, FaultID: 384, ResetID: 12, PRIBase: 0x400000, RunlistBase: graphicsRunlist},
	})
	file.StoreTime(now)
	// This is written last, since it makes the rest valid.
	file.Store(nvreg.PMCBoot0, nvreg.Boot0{Architecture: nvreg.Ampere, Major: 0xa, Minor: 1}.Encode())
	list, err := nvreg.FindGraphics(file.Space)
	if err != nil {
		_ = unix.Munmap(mem)
		return nil, closing(f, fmt.Errorf("check the register file: %w", err))
	}
	return &regFile{fd: f, mem: mem, file: file, list: list}, nil
}

// Engine implements machine.Registers. The channel is written before the status, which readers
// poll.
func (r *regFile) Engine(at time.Duration, s nvreg.EngineState, channel uint32, shown bool) {
	r.file.StoreTime(at)
	r.file.Store(r.list.ChannelOffset(), uint32(nvreg.EncodeEngineChannel(channel, shown)))
	r.file.Store(r.list.StatusOffset(), uint32(s.Encode()))
}

// Entry implements machine.Registers.
func (r *regFile) Entry(_ time.Duration, channel uint32, e nvreg.ChannelEntry) {
	r.file.Store(r.list.EntryOffset(channel), uint32(e))
}

// gone writes the values that a reader sees of a device that fell off the bus.
func (r *regFile) gone() {
	r.file.Store(r.list.StatusOffset(), nvreg.AllOnes)
	r.file.Store(nvreg.PMCBoot0, nvreg.AllOnes)
}

func (r *regFile) close() error {
	if err := unix.Munmap(r.mem); err != nil {
		return fmt.Errorf("unmap the register file: %w", err)
	}
	return r.fd.Close()
}

// closing closes f and returns err.
func closing(f *os.File, err error) error {
	if cerr := f.Close(); cerr != nil {
		return fmt.Errorf("%w (and close it: %v)", err, cerr)
	}
	return err
}

// MapRegisters maps a register file, as returned by [Driver.Registers], for reading. The file
// remains the caller's. Unmap the memory with unix.Munmap.
func MapRegisters(f *os.File) ([]byte, nvreg.Space, error) {
	if err := memfd.Check(f, nvreg.Size); err != nil {
		return nil, nvreg.Space{}, fmt.Errorf("the soft GPU's registers: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, nvreg.Size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nvreg.Space{}, fmt.Errorf("map the soft GPU's registers: %w", err)
	}
	s, err := nvreg.NewSpace(mem)
	return mem, s, err
}
