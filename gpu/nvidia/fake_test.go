package nvidia

import (
	"encoding/binary"
	"errors"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/cuda/cudatest"
)

// kernelsPTX has the kernels that newFake gives the driver.
const kernelsPTX = `.version 7.0
.target sm_70
.address_size 64
.global .b8 table[64];
.visible .entry add(.param .u64 at) {}
.visible .entry hang(.param .u64 at) {}
.visible .entry bad(.param .u64 at) {}
`

// fake is a device on the software driver. Its kernel "add" adds 1 to the word at its parameter.
// "hang" runs until unblock is called; so does "bad", which then faults.
type fake struct {
	*Device
	gpu     *cudatest.GPU
	release chan struct{}
}

func newFake(t testing.TB, o Options) *fake {
	t.Helper()
	g := cudatest.New()
	x := &fake{gpu: g, release: make(chan struct{})}
	g.Kernels["add"] = func(l *cudatest.Launch) error {
		b, err := g.Bytes(cuda.DevicePtr(l.Param(0)), 8)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)+1)
		return nil
	}
	g.Kernels["hang"] = func(*cudatest.Launch) error {
		<-x.release
		return nil
	}
	g.Kernels["bad"] = func(*cudatest.Launch) error {
		<-x.release // otherwise it could fault before the launch call has returned
		return cuda.ErrIllegalAddress
	}
	o.Driver = g
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	x.Device = d
	t.Cleanup(func() {
		x.unblock()
		if err := d.Close(); err != nil && !errors.Is(err, gpu.ErrTimeLimit) {
			t.Error(err)
		}
	})
	return x
}

// unblock ends kernels that hang.
func (x *fake) unblock() {
	select {
	case <-x.release:
	default:
		close(x.release)
	}
}

func (x *fake) context(t testing.TB, o gpu.ContextOptions) *Context {
	t.Helper()
	c, err := x.NewContext(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*Context)
}

// kernel returns a launch of one of the kernels.
func kernel(t testing.TB, c *Context, name string, param uint64) *gpu.Launch {
	t.Helper()
	m, err := c.LoadModule([]byte(kernelsPTX))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function(name)
	if err != nil {
		t.Fatal(err)
	}
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	return &gpu.Launch{Function: f, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint64(nil, param)}
}

func alloc(t testing.TB, c *Context, n uint64) gpu.Ptr {
	t.Helper()
	p, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// read copies n bytes out.
func read(t testing.TB, ch *Channel, p gpu.Ptr, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	f, err := ch.CopyOut(b, p)
	if o := ran(t, ch, f, err); o.Err != nil {
		t.Fatal(o.Err)
	}
	return b
}
