package vgpu_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// TestPassedSharedMemoryIsSealed takes BAR2's descriptor as a VMM gets it, and tries everything
// that would change the file under a mapping: a shrunk file ends its next user by SIGBUS.
func TestPassedSharedMemoryIsSealed(t *testing.T) {
	h := newHostile(t, t.TempDir()+"/vgpu.sock")
	defer h.close(t)
	c, err := net.Dial("unix", h.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	vmm := vfiousertest.NewRaw(t, c.(*net.UnixConn))
	vmm.Negotiate()
	fd := passedBAR2(t, vmm)
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL; err != nil || seals&want != want {
		t.Errorf("seals %#x (%v), want at least %#x", seals, err, want)
	}
	for what, try := range map[string]func() error{
		"truncate to nothing":    func() error { return unix.Ftruncate(fd, 0) },
		"truncate by a page":     func() error { return unix.Ftruncate(fd, abi.MinSharedBytes-abi.PageSize) },
		"truncate to more":       func() error { return unix.Ftruncate(fd, 2*abi.MinSharedBytes) },
		"allocate beyond":        func() error { return unix.Fallocate(fd, 0, abi.MinSharedBytes, abi.PageSize) },
		"collapse a range":       func() error { return unix.Fallocate(fd, unix.FALLOC_FL_COLLAPSE_RANGE, 0, abi.PageSize) },
		"seal against writes":    func() error { _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); return err },
		"seal against execution": func() error { _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_EXEC); return err },
		"truncate, opened again": func() error { return os.Truncate(fmt.Sprintf("/proc/self/fd/%d", fd), 0) },
	} {
		if err := try(); err == nil {
			t.Errorf("%s: done", what)
		}
	}
	// Freeing pages is allowed: all mappings read zeros then, the device's too. Giving pages back
	// is allowed: whoever maps them finds zeros, the device too.
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, abi.MinSharedBytes); err != nil {
		t.Errorf("punch a hole: %v", err)
	}
	access := func(region uint32, offset uint64, data ...byte) []byte {
		p := make([]byte, vfiouser.SizeofRegionAccess)
		(&vfiouser.RegionAccess{Region: region, Offset: offset, Count: 4}).MarshalBytes(p)
		return append(p, data...)
	}
	if _, errno := vmm.Request(vfiouser.CmdRegionWrite, access(vfiouser.RegionBAR0, abi.RegReset, 'R', 'E', 'S', 'T')); errno != 0 {
		t.Errorf("reset: %v", errno)
	}
	reply, errno := vmm.Request(vfiouser.CmdRegionRead, access(vfiouser.RegionBAR2, abi.DeviceMagicWord))
	if errno != 0 || string(reply[vfiouser.SizeofRegionAccess:]) != "VGPU" {
		t.Errorf("magic %q (%v) after a reset", reply, errno)
	}
}

// passedBAR2 requests BAR2's file.
func passedBAR2(t *testing.T, vmm *vfiousertest.Raw) int {
	t.Helper()
	info := make([]byte, vfiouser.SizeofRegionInfo)
	(&vfiouser.RegionInfo{Argsz: uint32(len(info)), Index: vfiouser.RegionBAR2}).MarshalBytes(info)
	m := vmm.RequestMessage(vfiouser.CmdDeviceGetRegionInfo, info)
	if m.Errno != 0 || len(m.FDs) != 1 {
		t.Fatalf("BAR2: error %d, %d descriptors", m.Errno, len(m.FDs))
	}
	return m.FDs[0]
}

// TestGuestMemoryIsNeverMapped announces a guest's RAM as QEMU does, and searches for it in this
// process, which is the device's too.
func TestGuestMemoryIsNeverMapped(t *testing.T) {
	h := newHostile(t, t.TempDir()+"/vgpu.sock")
	defer h.close(t)
	h.attach(t)
	defer h.detach(t)
	ram := vfiousertest.Memfd(t, 64<<20)
	st, err := ram.Stat()
	if err != nil {
		t.Fatal(err)
	}
	inode := strconv.FormatUint(st.Sys().(*syscall.Stat_t).Ino, 10)
	mapped := func() (lines []string) {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(maps)) {
			if f := strings.Fields(line); len(f) > 4 && f[4] == inode {
				lines = append(lines, line)
			}
		}
		return lines
	}
	before := vfiousertest.Descriptors(t)
	for i := range uint64(64) {
		err := h.client.DMAMap(vfiouser.DMAMap{
			Flags: vfiouser.DMAMapFlagRead | vfiouser.DMAMapFlagWrite, Offset: i << 20, Addr: i << 19, Size: 1 << 20, // half of it over the last
		}, ram)
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := mapped(); got != nil {
		t.Errorf("guest RAM is mapped: %q", got)
	}
	if after := vfiousertest.Descriptors(t); len(after) != len(before) {
		t.Errorf("%d descriptors before the guest's memory was announced, %d after", len(before), len(after))
	}
	m, err := unix.Mmap(int(ram.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if len(mapped()) != 1 {
		t.Error("a mapping of this test's own is not found: the test shows nothing")
	}
	if err := errors.Join(unix.Munmap(m), h.client.DMAUnmap(0, 1<<40), h.client.DMAUnmapAll()); err != nil {
		t.Error(err)
	}
}
