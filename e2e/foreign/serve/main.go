// Command serve serves a vfio-user device in memory. It is for the tests of another implementation
// of the protocol, which expect a device of a certain shape.
//
// The first line of standard input describes the device in JSON; its files for mapping are
// inherited descriptors. When the socket listens, serve writes "ready". Each further line of input,
// "INDEX VECTOR", triggers an interrupt vector of the device. The answer is "true" if the client
// has set an eventfd for it, else "false". serve ends with the end of input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// description is a device for a test. Its configuration space, if any, is that of a PCI function
// with its BARs.
type description struct {
	Socket  string   `json:"socket"`
	Regions []region `json:"regions"`
	// IRQs are the numbers of vectors, by interrupt.
	IRQs map[uint32]uint32 `json:"irqs"`
}

type region struct {
	Index    uint32 `json:"index"`
	Size     uint64 `json:"size"`
	Is64     bool   `json:"is64"`
	Readable bool   `json:"readable"`
	Writable bool   `json:"writable"`
	// FD is the descriptor to map, or -1. Areas are the mappable parts of the region as offset and
	// size; empty means the whole.
	FD     int         `json:"fd"`
	Offset uint64      `json:"offset"`
	Areas  [][2]uint64 `json:"areas"`
}

func (d *description) device() (*vfiousertest.Device, error) {
	dev := &vfiousertest.Device{Desc: vfiouser.Description{
		Regions: make([]vfiouser.Region, vfiouser.NumRegions), IRQs: make([]vfiouser.IRQ, vfiouser.NumIRQs),
	}}
	for _, r := range d.Regions {
		if r.Index >= vfiouser.NumRegions {
			return nil, fmt.Errorf("region %d of %d", r.Index, vfiouser.NumRegions)
		}
		to := &dev.Desc.Regions[r.Index]
		to.Size, to.FileOffset = r.Size, r.Offset
		if r.Readable {
			to.Flags |= vfiouser.RegionFlagRead
		}
		if r.Writable {
			to.Flags |= vfiouser.RegionFlagWrite
		}
		if r.FD >= 0 {
			to.File = os.NewFile(uintptr(r.FD), fmt.Sprintf("region %d", r.Index))
		}
		for _, a := range r.Areas {
			to.Areas = append(to.Areas, vfiouser.SparseMmapArea{Offset: a[0], Size: a[1]})
		}
	}
	for index, count := range d.IRQs {
		if index >= vfiouser.NumIRQs {
			return nil, fmt.Errorf("interrupt %d of %d", index, vfiouser.NumIRQs)
		}
		dev.Desc.IRQs[index].Count = count
	}
	return dev, d.configure(dev)
}

// configure gives a device its configuration space.
func (d *description) configure(dev *vfiousertest.Device) error {
	size := dev.Desc.Regions[vfiouser.RegionConfig].Size
	if size == 0 {
		return nil
	}
	f := pci.Function{Extended: size > pci.SpaceBytes}
	for _, r := range d.Regions {
		if r.Index <= vfiouser.RegionBAR5 {
			f.BARs[r.Index] = pci.BAR{Size: r.Size, Is64: r.Is64}
		}
	}
	space, err := pci.New(f)
	if err != nil {
		return err
	}
	memory := &vfiousertest.Device{Desc: dev.Desc}
	dev.OnRead = func(region uint32, offset uint64, p []byte) error {
		if region == vfiouser.RegionConfig {
			return space.Read(offset, p)
		}
		return memory.RegionRead(region, offset, p)
	}
	dev.OnWrite = func(region uint32, offset uint64, p []byte) error {
		if region == vfiouser.RegionConfig {
			_, err := space.Write(offset, p)
			return err
		}
		return memory.RegionWrite(region, offset, p)
	}
	return nil
}

func run(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return fmt.Errorf("no description of a device: %w", lines.Err())
	}
	var d description
	if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
		return fmt.Errorf("description of a device: %w", err)
	}
	dev, err := d.device()
	if err != nil {
		return err
	}
	l, err := vfiouser.Listen(d.Socket, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	server := &vfiouser.Server{Device: dev, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	go func() { served <- server.Serve(ctx, l) }()
	_, err = fmt.Fprintln(out, "ready")
	for err == nil && lines.Scan() {
		var index, vector uint32
		if _, err = fmt.Sscan(lines.Text(), &index, &vector); err != nil {
			break
		}
		s := dev.Session()
		_, err = fmt.Fprintln(out, s != nil && s.Trigger(index, vector))
	}
	cancel()
	return errors.Join(err, lines.Err(), <-served)
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}
