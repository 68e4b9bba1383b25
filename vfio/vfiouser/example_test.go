package vfiouser_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"vgpud/vfio/vfiouser"
)

// adder is a device with three registers. The third is the sum of the first two.
type adder struct{ regs [12]byte }

func (a *adder) Describe() vfiouser.Description {
	const rw = vfiouser.RegionFlagRead | vfiouser.RegionFlagWrite
	return vfiouser.Description{Regions: []vfiouser.Region{vfiouser.RegionBAR0: {Size: 16, Flags: rw}}}
}

func (a *adder) Attach(*vfiouser.Session) error { return nil }

func (a *adder) Detach(*vfiouser.Session) { _ = a.Reset() }

func (a *adder) Reset() error {
	clear(a.regs[:])
	return nil
}

func (a *adder) RegionRead(_ uint32, offset uint64, p []byte) error {
	le := binary.LittleEndian
	le.PutUint32(a.regs[8:], le.Uint32(a.regs[0:])+le.Uint32(a.regs[4:]))
	copy(p, a.regs[min(offset, 12):])
	return nil
}

func (a *adder) RegionWrite(_ uint32, offset uint64, p []byte) error {
	copy(a.regs[min(offset, 12):], p)
	return nil
}

func Example() {
	dir, err := os.MkdirTemp("", "adder")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "adder.sock")
	l, err := vfiouser.Listen(socket, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error)
	go func() {
		srv := vfiouser.Server{Device: &adder{}, Log: slog.New(slog.DiscardHandler)}
		served <- srv.Serve(ctx, l)
	}()

	c, err := vfiouser.Dial(ctx, socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.WriteUint32(vfiouser.RegionBAR0, 0, 40)
	_ = c.WriteUint32(vfiouser.RegionBAR0, 4, 2)
	fmt.Println(c.ReadUint32(vfiouser.RegionBAR0, 8))
	fmt.Println(c.ReadUint32(vfiouser.RegionBAR1, 0))
	c.Close()

	cancel()
	fmt.Println(<-served)
	// Output:
	// 42 <nil>
	// 0 read 4 bytes at 0x0 of region 1: vfio-user REGION_READ refused by peer: invalid argument
	// <nil>
}
