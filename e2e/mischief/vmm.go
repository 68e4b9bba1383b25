package mischief

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"vgpud/vfio/vfiouser"
)

// vmmMischief are the ways in which a VMM misbehaves. Each attaches by itself, and calls begun when
// it has misbehaved at least once.
var vmmMischief = map[string]func(ctx context.Context, socket string, begun func()) error{
	"reads no replies": func(_ context.Context, socket string, begun func()) error {
		for {
			c, err := negotiate(socket)
			if err != nil {
				return err
			}
			read := message(vfiouser.CmdRegionRead, &vfiouser.RegionAccess{Region: vfiouser.RegionConfig, Count: 256})
			for err == nil {
				_, err = c.Write(read)
			}
			if err := c.Close(); err != nil {
				return err
			}
			begun() // the server disconnected it
		}
	},
	"announces any memory": func(ctx context.Context, socket string, begun func()) error {
		c, err := vfiouser.Dial(ctx, socket)
		if err != nil {
			return err
		}
		ram, err := memfd(1 << 20)
		if err != nil {
			return err
		}
		r := rand.New(rand.NewPCG(11, 12))
		any := func() uint64 {
			return []uint64{0, 4096, 1 << 20, 1 << 46, math.MaxUint64 - 4095, r.Uint64()}[r.IntN(6)]
		}
		var refused *vfiouser.Error
		for i := 0; ; i++ {
			if err := c.DMAMap(vfiouser.DMAMap{Flags: r.Uint32N(4), Offset: any(), Addr: any(), Size: any()}, ram); err != nil && !errors.As(err, &refused) {
				return err
			}
			if err := c.DMAUnmap(any(), any()); err != nil && !errors.As(err, &refused) {
				return err
			}
			if i == 20_000 {
				begun()
			}
		}
	},
	"leaves during its attach": func(_ context.Context, socket string, begun func()) error {
		attach := append(message(vfiouser.CmdVersion, &vfiouser.Version{}),
			message(vfiouser.CmdDMAMap, &vfiouser.DMAMap{Argsz: vfiouser.SizeofDMAMap, Flags: 3, Size: 1 << 20})...)
		attach = append(attach, message(vfiouser.CmdDeviceGetInfo, &vfiouser.DeviceInfo{Argsz: vfiouser.SizeofDeviceInfo})...)
		attach = append(attach, message(vfiouser.CmdDeviceGetRegionInfo, &vfiouser.RegionInfo{Argsz: vfiouser.SizeofRegionInfo, Index: 2})...)
		for i := 0; ; i++ {
			c, err := net.Dial("unix", socket)
			if errors.Is(err, syscall.EAGAIN) {
				continue // the socket's backlog is full
			}
			if err != nil {
				return err
			}
			// An error means that other such connections are in the way.
			_, _ = c.Write(attach[:i%(len(attach)+1)])
			if err := c.Close(); err != nil {
				return err
			}
			if i == 2*len(attach) {
				begun()
			}
		}
	},
	"resets while kernels run": func(ctx context.Context, socket string, begun func()) error {
		for i := 0; ; i++ {
			f, err := Attach(ctx, socket)
			if errors.Is(err, syscall.EBUSY) {
				continue // the previous one takes a while to end
			}
			if err != nil {
				return err
			}
			if _, err := LaunchEndless(ctx, f.GPU); err != nil {
				return err
			}
			if i%2 == 0 {
				err = f.Client.Reset()
			}
			if err = errors.Join(err, f.Client.Close()); err != nil {
				return err
			}
			if i == 4 {
				begun()
			}
		}
	},
}

// negotiate attaches with only a VERSION message.
func negotiate(socket string) (*net.UnixConn, error) {
	for {
		c, err := net.Dial("unix", socket)
		if errors.Is(err, syscall.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var h vfiouser.Header
		reply := make([]byte, 4096)
		if _, err = c.Write(message(vfiouser.CmdVersion, &vfiouser.Version{})); err == nil {
			_, err = c.Read(reply)
		}
		if h.UnmarshalBytes(reply); err == nil && h.Errno == 0 {
			return c.(*net.UnixConn), nil
		}
		if err := errors.Join(err, c.Close()); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			return nil, err
		}
	}
}

// message returns a complete message.
func message(cmd uint16, payload interface{ MarshalBytes([]byte) }) []byte {
	sizes := map[uint16]int{
		vfiouser.CmdVersion: vfiouser.SizeofVersion, vfiouser.CmdDMAMap: vfiouser.SizeofDMAMap,
		vfiouser.CmdDeviceGetInfo: vfiouser.SizeofDeviceInfo, vfiouser.CmdDeviceGetRegionInfo: vfiouser.SizeofRegionInfo,
		vfiouser.CmdRegionRead: vfiouser.SizeofRegionAccess,
	}
	b := make([]byte, vfiouser.SizeofHeader+sizes[cmd])
	(&vfiouser.Header{ID: 1, Cmd: cmd, Size: uint32(len(b))}).MarshalBytes(b)
	payload.MarshalBytes(b[vfiouser.SizeofHeader:])
	return b
}

func memfd(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "ram")
	return f, f.Truncate(size)
}
