package agent

import (
	"context"
	_ "embed" // the kernel
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

//go:embed check.ptx
var checkPTX []byte

// The grid of the check's kernel.
const (
	checkBlocks  = 8
	checkThreads = 128
)

// CheckOptions configure a check.
type CheckOptions struct {
	// Count is how many launches are timed; 0 means none.
	Count int
	// Parts also times the steps of a launch, and launches after pauses.
	Parts bool
}

// CheckResult is the result of checking a virtual GPU.
type CheckResult struct {
	Address string `json:"address,omitempty"`
	// OK means that a kernel ran and computed correctly; otherwise Error says what failed.
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	// Access is how the device is reached, and Why is the reason if that is not vfio.
	Access string `json:"access,omitempty"`
	Why    string `json:"why,omitempty"`
	// GPU is the model's name, Vectors the number of interrupt vectors.
	GPU     string `json:"gpu,omitempty"`
	Vectors int    `json:"vectors"`
	// Launch is the time from launch to completion of an empty kernel.
	Launch *Times `json:"launch,omitempty"`
	// Parts are the times of a launch's steps, as far as a guest can measure them, and Launches
	// those of whole launches under several conditions.
	Parts    []Part   `json:"parts,omitempty"`
	Launches []Launch `json:"launches,omitempty"`

	err error // as Error
}

// Check runs a kernel on a device and compares its results. It uses a context of its own. The error
// is ctx's or the device's.
func Check(ctx context.Context, bus driver.Bus, dev *driver.Device, o CheckOptions) (r CheckResult, err error) {
	r.Vectors = dev.Info().Vectors
	gpu, err := dev.NewContext(ctx, driver.ContextOptions{Task: checkTask(dev.Info())})
	if err != nil {
		return r, err
	}
	defer func() {
		if e := gpu.Close(); err == nil {
			err = e
		}
		r.OK = err == nil
	}()
	if r.GPU, err = gpu.DeviceName(ctx); err != nil {
		return r, fmt.Errorf("ask for the GPU's name: %w", err)
	}
	mod, err := gpu.LoadModule(ctx, checkPTX)
	if err != nil {
		return r, err
	}
	if err := compute(ctx, gpu, mod); err != nil {
		return r, err
	}
	if o.Count == 0 {
		return r, nil
	}
	empty, err := mod.Function(ctx, "vgpu_agent_empty")
	if err != nil {
		return r, err
	}
	m := meter{ctx: ctx, bus: bus, gpu: gpu, launch: driver.Launch{Function: empty}, count: o.Count}
	return r, m.measure(&r, o.Parts)
}

// compute runs the kernel once and compares its results.
func compute(ctx context.Context, gpu *driver.Context, mod *driver.Module) error {
	f, err := mod.Function(ctx, "vgpu_agent_check")
	if err != nil {
		return err
	}
	const n = checkBlocks * checkThreads
	out, err := gpu.Alloc(ctx, 4*n)
	if err != nil {
		return err
	}
	seed := rand.Uint32() // so that results of an earlier check can't pass
	p, err := gpu.Own().Launch(ctx, f, driver.Dim{X: checkBlocks}, driver.Dim{X: checkThreads}, 0, out, seed)
	if err == nil {
		err = p.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("run the check's kernel: %w", err)
	}
	got := make([]byte, 4*n)
	if err := gpu.CopyOut(ctx, got, out); err != nil {
		return err
	}
	for i := range uint32(n) {
		want := expected(i, seed)
		if v := binary.LittleEndian.Uint32(got[4*i:]); v != want {
			return fmt.Errorf("the check's kernel computed %#x in thread %d, want %#x", v, i, want)
		}
	}
	return gpu.Free(ctx, out)
}

// expected returns what thread i of the kernel stores.
func expected(i, seed uint32) uint32 {
	h := (i ^ seed) * 2654435761
	return h ^ h>>16
}

// checkTask returns what a check needs of a device that floats, where its context need not wait for
// all the memory that the guest may have; nil on others.
func checkTask(i driver.Info) *driver.Task {
	if i.Features&abi.FeatureFloating == 0 || i.MemoryBytes == 0 {
		return nil
	}
	return &driver.Task{MemoryBytes: min(i.MemoryBytes, 64<<20)}
}

// CheckBus opens a virtual GPU, checks it and closes it. Errors are in the result.
func CheckBus(ctx context.Context, address string, open func(context.Context, string) (driver.Bus, error), o CheckOptions) CheckResult {
	bus, err := open(ctx, address)
	if err != nil {
		return failedCheck(address, err)
	}
	dev, err := driver.Open(ctx, bus)
	if err != nil {
		return failedCheck(address, err)
	}
	r, err := Check(ctx, bus, dev, o)
	err = errors.Join(err, dev.Close())
	r.Address = address
	if b, ok := bus.(interface{ Access() (driver.Access, error) }); ok {
		access, why := b.Access()
		if r.Access = access.String(); why != nil {
			r.Why = why.Error()
		}
	}
	if err != nil {
		r.OK, r.Error, r.err = false, err.Error(), err
	}
	return r
}

func failedCheck(address string, err error) CheckResult {
	return CheckResult{Address: address, Error: err.Error(), err: err}
}

// checkTimeout bounds a check that the agent makes by itself. A slow host or VM is no defect of the
// device: without KVM, on a machine whose processors are all busy, a check has taken more than half
// a minute. The limit is long, since only programs that ask for the device wait for it.
const checkTimeout = 10 * time.Minute
