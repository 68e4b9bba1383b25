package executor

import (
	"encoding/binary"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/mediator/vgpu/abi"
)

// boastful is a context's device that claims everything.
type boastful struct{ gpu.Device }

func (boastful) Attributes() (a [gpu.AttributeCount]int32, err error) {
	for i := range a {
		a[i] = 7
	}
	return a, nil
}

// TestAttributes checks that all attributes are answered at once and one by one, alike, that those
// which would be untrue for a guest are 0, and that the rest is the GPU's.
func TestAttributes(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{KernelTimeLimit: 1e9})
	r.x.o.Device = boastful{r.x.o.Device}
	g := r.open()
	const bytes = 4 * abi.DeviceAttributes
	c := g.must(abi.OpDeviceAttributes, abi.WindowArg{Window: abi.Window{Offset: staging, Size: bytes}})
	if c.Value[0] != bytes {
		t.Fatalf("%d bytes, want %d", c.Value[0], bytes)
	}
	var all [abi.DeviceAttributes]int32
	for i := range all {
		all[i] = int32(binary.LittleEndian.Uint32(r.shared[staging+4*i:]))
		if i == 0 {
			continue
		}
		if v := g.must(abi.OpDeviceAttribute, abi.Query{Key: uint32(i)}).Value[0]; int32(v) != all[i] {
			t.Errorf("attribute %d is %d alone and %d in the table", i, int32(v), all[i])
		}
	}
	for a, want := range map[gpu.Attribute]int32{
		gpu.ManagedMemory: 0, gpu.ConcurrentManagedAccess: 0, gpu.PageableMemoryAccess: 0, gpu.IPCEvents: 0, gpu.HandleTypePosixFD: 0,
		gpu.MemoryPoolHandleTypes: 0, gpu.ClusterLaunch: 0, gpu.PCIBusID: 0, gpu.ComputeMode: 0, gpu.HostNUMAID: -1, gpu.NUMAID: -1,
		gpu.KernelExecTimeout: 1, gpu.WarpSize: 32, gpu.MultiprocessorCount: int32(r.x.props.SMs),
		gpu.TextureAlignment: 7, gpu.CooperativeLaunch: 7,
	} {
		if all[a] != want {
			t.Errorf("attribute %d is %d, want %d", a, all[a], want)
		}
	}
	for _, bad := range []uint32{0, abi.DeviceAttributes, 0xfff, 1 << 31} {
		if c := g.call(abi.Header{Op: abi.OpDeviceAttribute}, abi.Query{Key: bad}); c.Status != abi.StatusNotSupported {
			t.Errorf("attribute %d: %v", bad, c.Status)
		}
	}
	if c := g.call(abi.Header{Op: abi.OpDeviceAttributes}, abi.WindowArg{Window: abi.Window{Offset: 0, Size: bytes}}); c.Status != abi.StatusInvalidWindow {
		t.Errorf("into the header: %v", c.Status)
	}
}

func TestLimits(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	get := func(key uint32) uint64 { return g.must(abi.OpLimit, abi.Query{Key: key}).Value[0] }
	for _, c := range []struct {
		key    uint32
		set    uint64
		status abi.Status
		want   uint64
	}{
		{abi.LimitStackBytes, 4000, abi.StatusOK, 4000},
		{abi.LimitPrintfBytes, 2 << 20, abi.StatusOK, 2 << 20},
		{abi.LimitPrintfBytes, 1 << 62, abi.StatusInvalidValue, 2 << 20},
		{abi.LimitHeapBytes, 1 << 20, abi.StatusOK, 1 << 20},
		{abi.LimitHeapBytes, 1 << 62, abi.StatusInvalidValue, 1 << 20},
		{abi.LimitL2FetchBytes, 32, abi.StatusOK, 32},
		{abi.LimitPersistingL2, 1 << 20, abi.StatusOK, 0},
	} {
		if s := g.call(abi.Header{Op: abi.OpSetLimit}, abi.Query{Key: c.key, Value: c.set}).Status; s != c.status {
			t.Errorf("set limit %d to %d: %v, want %v", c.key, c.set, s, c.status)
		}
		if v := get(c.key); v != c.want {
			t.Errorf("limit %d is %d, want %d", c.key, v, c.want)
		}
	}
	for _, op := range []abi.Opcode{abi.OpLimit, abi.OpSetLimit} {
		for _, key := range []uint32{abi.LimitSyncDepth, abi.LimitPending, 10, 1 << 31} {
			if s := g.call(abi.Header{Op: op}, abi.Query{Key: key}).Status; s != abi.StatusNotSupported {
				t.Errorf("%v %d: %v", op, key, s)
			}
		}
	}
}

// coded is a context that keeps what it is to load.
type coded struct {
	gpu.Context
	image []byte
}

func (c *coded) LoadModule(image []byte) (gpu.Module, error) {
	c.image = image
	return fakeModule{}, nil
}

// TestMachineCode checks that machine code reaches the GPU as it is where the GPU takes it, and that
// kinds of GPUs offer it accordingly.
func TestMachineCode(t *testing.T) {
	var c *coded
	r := newRigIn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1}, gpu.ContextOptions{}, func(of gpu.Context) gpu.Context {
		c = &coded{Context: of}
		return c
	})
	r.x.props.MachineCode = true
	g := r.open()
	const image = "\x7fELF, and so on"
	copy(r.shared[staging:], image)
	for _, f := range []abi.Format{abi.FormatCubin, abi.FormatFat} {
		c.image = nil
		g.must(abi.OpModuleLoad, abi.Module{Image: abi.Window{Offset: staging, Size: uint64(len(image))}, Format: f})
		if string(c.image) != image {
			t.Errorf("format %d: the GPU was given %q", f, c.image)
		}
	}
	if s := g.call(abi.Header{Op: abi.OpModuleLoad}, abi.Module{Format: abi.FormatFat + 1}).Status; s != abi.StatusInvalidValue {
		t.Errorf("an unknown format: %v", s)
	}
	if FeaturesOf("nvidia")&abi.FeatureCubin == 0 || FeaturesOf("soft")&abi.FeatureCubin != 0 {
		t.Error("machine code is offered on the wrong kind of GPU")
	}
}

// TestSetFunctionAttributes checks which attributes of a function can be set, to what, and that the
// other functions keep theirs.
func TestSetFunctionAttributes(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn, other := g.load(incPTX, "inc"), g.load(spinPTX, "spin")
	most := r.x.props.SharedPerBlockOptin
	for _, x := range []struct {
		key    uint32
		value  uint64
		status abi.Status
		after  uint64
	}{
		{abi.FunctionMaxDynamicShared, 1 << 10, abi.StatusOK, 1 << 10},
		{abi.FunctionMaxDynamicShared, most + 1, abi.StatusInvalidValue, 1 << 10},
		{abi.FunctionMaxDynamicShared, ^uint64(0), abi.StatusInvalidValue, 1 << 10},
		{abi.FunctionCarveout, 101, abi.StatusInvalidValue, ^uint64(0)},
		{abi.FunctionCarveout, 100, abi.StatusOK, 100},
		{abi.FunctionCarveout, ^uint64(0), abi.StatusOK, ^uint64(0)},
		{abi.FunctionRegisters, 1, abi.StatusNotSupported, uint64(r.x.functions.byID[fn].attrs.Registers)},
	} {
		if s := g.call(abi.Header{Op: abi.OpFunctionSetAttribute}, abi.Query{Handle: fn, Key: x.key, Value: x.value}).Status; s != x.status {
			t.Errorf("attribute %d := %d: %v, want %v", x.key, int64(x.value), s, x.status)
		}
		if v := g.must(abi.OpFunctionAttribute, abi.Query{Handle: fn, Key: x.key}).Value[0]; v != x.after {
			t.Errorf("attribute %d is %d after %d, want %d", x.key, v, int64(x.value), x.after)
		}
	}
	if v := g.must(abi.OpFunctionAttribute, abi.Query{Handle: other, Key: abi.FunctionMaxDynamicShared}).Value[0]; v != most {
		t.Errorf("another function may use %d bytes, want %d", v, most)
	}
}

// clusterOf is the launch attribute for a cluster's blocks.
func clusterOf(x, y, z uint32) abi.Attribute {
	a := abi.Attribute{ID: abi.AttributeCluster}
	for i, n := range []uint32{x, y, z} {
		a.PutUint32(i, n)
	}
	return a
}

// TestClusters: a cluster is one block; a product that is 1 in 32 bits alone is none.
func TestClusters(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	l, params := launchOf(g.load(spinPTX, "spin"), 1, 1)
	for _, c := range []struct {
		x, y, z uint32
		want    abi.Status
	}{
		{1, 1, 1, abi.StatusOK},
		{2, 1, 1, abi.StatusInvalidCluster},
		{0, 1, 1, abi.StatusInvalidCluster},
		{3, 0xaaaaaaab, 1, abi.StatusInvalidCluster},
		{1, 0xffffffff, 0xffffffff, abi.StatusInvalidCluster},
	} {
		if got := g.call(abi.Header{Op: abi.OpLaunch, Aux: 1}, l, attributed(params, clusterOf(c.x, c.y, c.z))...); got.Status != c.want {
			t.Errorf("%d x %d x %d blocks: %v, want %v", c.x, c.y, c.z, got.Status, c.want)
		}
	}
}
