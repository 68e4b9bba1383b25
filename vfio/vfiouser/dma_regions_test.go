package vfiouser_test

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// A client may announce any memory to a device that does no DMA, in any number, size and overlap.
// None of it is mapped, none of its descriptors is open when the reply arrives, and the session
// goes on. There is no table that could be filled.
func TestAnyDMARegions(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	ram := vfiousertest.Memfd(t, 1<<20)
	addr := rapid.OneOf(
		rapid.SampledFrom([]uint64{0, 4096, 1 << 20, 1 << 47, math.MaxUint64 - 4095, math.MaxUint64}),
		rapid.Uint64Range(0, 16), rapid.Uint64())
	rapid.Check(t, func(rt *rapid.T) {
		r := vfiousertest.Negotiated(t, dev)
		defer r.Conn.Close()
		for range rapid.IntRange(1, 40).Draw(rt, "requests") {
			a, n := addr.Draw(rt, "address"), addr.Draw(rt, "size")
			if rapid.IntRange(0, 3).Draw(rt, "kind") == 0 {
				p := dmaUnmap(rapid.Uint32Range(0, 3).Draw(rt, "flags"), a, n)
				if reply, errno := r.Request(vfiouser.CmdDMAUnmap, p); errno == 0 && string(reply) != string(p) {
					rt.Fatalf("unmapping % x is answered % x", p, reply)
				}
				continue
			}
			var fds []int
			for range rapid.IntRange(0, 2).Draw(rt, "descriptors") {
				fds = append(fds, int(ram.Fd()))
			}
			offset, flags := addr.Draw(rt, "offset"), rapid.Uint32Range(0, 16).Draw(rt, "flags")
			_, errno := r.Request(vfiouser.CmdDMAMap, dmaMap(flags, offset, a, n), fds...)
			bad := n == 0 || a+n-1 < a || offset+n-1 < offset || flags > 15 || len(fds) > 1 ||
				flags&4 != 0 && flags&8 != 0 || flags&12 != 0 && len(fds) == 0
			if (errno != 0) != bad {
				rt.Fatalf("mapping of %#x+%#x, offset %#x, flags %#x, %d descriptors: %v", a, n, offset, flags, len(fds), errno)
			}
		}
		if n := held(t, ram); n != "" {
			rt.Fatalf("the client's memory is still held:\n%s", n)
		}
	})
}

// A client may announce more regions than a table should hold.
func TestManyDMARegions(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	r := vfiousertest.Negotiated(t, gpuLike(t))
	ram := vfiousertest.Memfd(t, 1<<20)
	const many = 70_000 // more than either end announces
	for i := range uint64(2000) {
		r.Send(vfiouser.CmdDMAMap, vfiouser.FlagNoReply, dmaMap(3, 0, i<<20, 1<<20), int(ram.Fd()))
	}
	var rest []byte // each descriptor belongs to one message
	for i := uint64(2000); i < many; i++ {
		rest = append(rest, vfiousertest.Encode(vfiouser.Header{Cmd: vfiouser.CmdDMAMap, Flags: vfiouser.FlagNoReply}, dmaMap(3, 0, i<<20, 1<<20))...)
	}
	r.SendBytes(rest)
	if _, errno := r.Request(vfiouser.CmdDMAMap, dmaMap(3, 0, 0, 1<<20), int(ram.Fd())); errno != 0 {
		t.Errorf("another region: %v", errno)
	}
	if n := held(t, ram); n != "" {
		t.Errorf("the client's memory is still held:\n%s", n)
	}
}

// held describes where in this process a file is open or mapped apart from the test's own
// descriptor.
func held(t testing.TB, f *os.File) string {
	t.Helper()
	own, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var found strings.Builder
	for fd := range vfiousertest.Descriptors(t) {
		st, err := os.Stat("/proc/self/fd/" + fd)
		if err == nil && os.SameFile(own, st) && fd != strconv.Itoa(int(f.Fd())) {
			fmt.Fprintf(&found, "descriptor %s\n", fd)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	inode := strconv.FormatUint(own.Sys().(*syscall.Stat_t).Ino, 10)
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == inode {
			found.WriteString(line)
		}
	}
	return found.String()
}
