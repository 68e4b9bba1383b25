package executor

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/gpu"
	"vgpud/internal/sched"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

func TestKernelFromAllocationToResult(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(incPTX, "inc")

	mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	if c := g.must(abi.OpMemRange, abi.Handle{Handle: mem + 5}); c.Value[0] != mem || c.Value[1] != 128 {
		t.Errorf("MEM_RANGE = %#x, %d, want %#x, 128", c.Value[0], c.Value[1], mem)
	}
	want := make([]byte, 128)
	for i := range 32 {
		binary.LittleEndian.PutUint32(r.shared[staging+4*i:], uint32(100*i))
		binary.LittleEndian.PutUint32(want[4*i:], uint32(100*i+3))
	}
	g.send(abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: mem, Src: staging, Size: 128})
	l, params := launchOf(fn, 32, mem)
	for range 3 {
		g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	}
	const out = staging + 4096
	g.send(abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: out, Src: mem, Size: 128})
	var last uint64
	for i, c := range g.receive(5) {
		if c.Status != abi.StatusOK {
			t.Fatalf("command %d: %v", i, c.Status)
		}
		if c.Start == 0 || c.End < c.Start || c.Start < last {
			t.Errorf("command %d ran from %d to %d, after one that began at %d", i, c.Start, c.End, last)
		}
		last = c.Start
	}
	if diff := cmp.Diff(want, r.shared[out:out+128]); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	g.must(abi.OpMemFree, abi.Handle{Handle: mem})
	if c := g.call(abi.Header{Op: abi.OpMemFree}, abi.Handle{Handle: mem}); c.Status != abi.StatusInvalidAddress {
		t.Errorf("second free: %v", c.Status)
	}
	counters := r.page.Context(0).Counters()
	if counters.Kernels != 3 || counters.Errors != 1 || counters.CopiedBytes != 256 {
		t.Errorf("counters: %+v", counters)
	}
}

func TestFunctionLookup(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(incPTX, "inc")
	c := g.must(abi.OpFunction, abi.Lookup{Module: 1, NameBytes: 3}, []byte("inc")...)
	if want := [3]uint64{fn, 1, 8}; c.Value != want {
		t.Errorf("second lookup answers %v, want %v: the function, its parameters and their bytes", c.Value, want)
	}
	if c := g.must(abi.OpFunctionParam, abi.Query{Handle: fn}); c.Value[0] != 0 || c.Value[1] != 8 {
		t.Errorf("parameter 0 at %d, %d bytes", c.Value[0], c.Value[1])
	}
	if c := g.call(abi.Header{Op: abi.OpFunction}, abi.Lookup{Module: 1, NameBytes: 4}, []byte("none")...); c.Status != abi.StatusNotFound {
		t.Errorf("unknown name: %v", c.Status)
	}
}

func TestSet(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 64}).Value[0]
	g.must(abi.OpSet, abi.Set{Dst: mem, Count: 32, Rows: 1, Value: 0xab, Width: 1})
	g.must(abi.OpSet, abi.Set{Dst: mem + 32, Count: 4, Rows: 2, Pitch: 16, Value: 0x01020304, Width: 4})
	g.must(abi.OpSet, abi.Set{Dst: mem, Count: 1, Rows: 3, Pitch: 6, Value: 0xcdef, Width: 2})
	g.must(abi.OpCopyOut, abi.Transfer{Dst: staging, Src: mem, Size: 64})
	const row, gap = "\xef\xcd", "\xab\xab\xab\xab"
	want := row + gap + row + gap + row + strings.Repeat("\xab", 18) + strings.Repeat("\x04\x03\x02\x01", 8)
	if diff := cmp.Diff(want, string(r.shared[staging:staging+64])); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
}

// TestBoxes copies a box into GPU memory, across and out again, with other gaps each time, and
// checks every byte of the last place, gaps too.
func TestBoxes(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	const w, h, d = 5, 3, 2
	a := g.must(abi.OpMemAlloc, abi.Alloc{Size: 8*4*1 + 8*2 + w}).Value[0] // no byte more than the box takes
	b := g.must(abi.OpMemAlloc, abi.Alloc{Size: w * h * d}).Value[0]
	const in, out = staging, staging + 1<<16
	for i := range 1 << 12 {
		r.shared[in+i] = byte(i * 7)
	}
	box := abi.Copy3D{Width: w, Height: h, Depth: d}
	first, across, last := box, box, box
	first.Src, first.SrcPlace, first.SrcPitch, first.SrcRows = in, abi.PlaceWindow, 11, 7
	first.Dst, first.DstPitch, first.DstRows = a, 8, 4
	across.Src, across.SrcPitch, across.SrcRows = a, 8, 4
	across.Dst, across.DstPitch, across.DstRows = b, w, h
	last.Src, last.SrcPitch, last.SrcRows = b, w, h
	last.Dst, last.DstPlace, last.DstPitch, last.DstRows = out, abi.PlaceWindow, 9, 5
	want := make([]byte, 1<<10)
	for z := range d {
		for y := range h {
			copy(want[(z*5+y)*9:][:w], r.shared[in+(z*7+y)*11:])
		}
	}
	before := r.page.Context(0).Counters().CopiedBytes
	for _, p := range []abi.Copy3D{first, across, last, {Dst: 1, Src: 2, Height: 1 << 31, Depth: 1 << 31}} {
		g.send(abi.Header{Op: abi.OpCopy3D}, p)
	}
	for i, c := range g.receive(4) {
		if c.Status != abi.StatusOK {
			t.Fatalf("box %d: %v", i, c.Status)
		}
	}
	if diff := cmp.Diff(want, r.shared[out:out+1<<10]); diff != "" {
		t.Errorf("box (-want +got):\n%s", diff)
	}
	if n := r.page.Context(0).Counters().CopiedBytes - before; n != 3*w*h*d {
		t.Errorf("%d bytes are counted as copied, want %d", n, 3*w*h*d)
	}
	last.Depth++ // one slice more than there is
	if c := g.call(abi.Header{Op: abi.OpCopy3D}, last); c.Status != abi.StatusInvalidAddress {
		t.Errorf("a box beyond its allocation: %v", c.Status)
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(incPTX, "inc")
	good, params := launchOf(fn, 32, 0)
	for name, c := range map[string]struct {
		h    abi.Header
		p    payload
		more []byte
		want abi.Status
	}{
		"copy from the header":   {abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: 0, Src: 0, Size: 8}, nil, abi.StatusInvalidWindow},
		"copy from rings":        {abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: 0, Src: uint64(r.header), Size: 8}, nil, abi.StatusInvalidWindow},
		"copy to rings' end":     {abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: uint64(r.header+r.rings) - 1, Src: 4096, Size: 8}, nil, abi.StatusInvalidWindow},
		"copy past the end":      {abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: 0, Src: sharedBytes - 4, Size: 8}, nil, abi.StatusInvalidWindow},
		"copy to nowhere":        {abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: 4096, Src: staging, Size: 8}, nil, abi.StatusInvalidAddress},
		"copy of everything":     {abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: staging, Src: 4096, Size: 1 << 63}, nil, abi.StatusInvalidWindow},
		"allocate nothing":       {abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{}, nil, abi.StatusInvalidValue},
		"allocate everything":    {abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 1 << 62}, nil, abi.StatusOutOfMemory},
		"odd alignment":          {abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 8, Align: 3}, nil, abi.StatusInvalidValue},
		"no such module":         {abi.Header{Op: abi.OpModuleUnload}, abi.Handle{Handle: 77}, nil, abi.StatusInvalidHandle},
		"no such function":       {abi.Header{Op: abi.OpLaunch}, abi.Launch{Function: 77, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}, nil, abi.StatusInvalidHandle},
		"empty grid":             {abi.Header{Op: abi.OpLaunch}, abi.Launch{Function: fn, Block: [3]uint32{1, 1, 1}, ParamBytes: 8}, params, abi.StatusInvalidValue},
		"huge block":             {abi.Header{Op: abi.OpLaunch}, abi.Launch{Function: fn, Grid: good.Grid, Block: [3]uint32{1024, 1024, 1}, ParamBytes: 8}, params, abi.StatusLaunchResources},
		"missing parameters":     {abi.Header{Op: abi.OpLaunch}, abi.Launch{Function: fn, Grid: good.Grid, Block: good.Block}, nil, abi.StatusInvalidValue},
		"attributes cut short":   {abi.Header{Op: abi.OpLaunch, Aux: 9}, good, params, abi.StatusMalformed},
		"too many attributes":    {abi.Header{Op: abi.OpLaunch, Aux: 0xffff}, good, params, abi.StatusInvalidValue},
		"set beyond all bounds":  {abi.Header{Op: abi.OpSet}, abi.Set{Count: 1 << 61, Rows: 1 << 61, Width: 4}, nil, abi.StatusInvalidValue},
		"box whose rows overlap": {abi.Header{Op: abi.OpCopy3D}, abi.Copy3D{Dst: staging, Src: staging, DstPlace: abi.PlaceWindow, SrcPlace: abi.PlaceWindow, Width: 8, Height: 2, Depth: 1, DstPitch: 8, SrcPitch: 7}, nil, abi.StatusInvalidValue},
		"box from the header":    {abi.Header{Op: abi.OpCopy3D}, abi.Copy3D{Dst: staging, Src: 0, DstPlace: abi.PlaceWindow, SrcPlace: abi.PlaceWindow, Width: 8, Height: 1, Depth: 1}, nil, abi.StatusInvalidWindow},
		"box from rings":         {abi.Header{Op: abi.OpCopy3D}, abi.Copy3D{Dst: staging, Src: uint64(r.header), DstPlace: abi.PlaceWindow, SrcPlace: abi.PlaceWindow, Width: 8, Height: 1, Depth: 1}, nil, abi.StatusInvalidWindow},
		"box past the end":       {abi.Header{Op: abi.OpCopy3D}, abi.Copy3D{Dst: staging, Src: staging, DstPlace: abi.PlaceWindow, SrcPlace: abi.PlaceWindow, Width: 8, Height: 2, Depth: 2, DstPitch: 8, DstRows: 2, SrcPitch: 8, SrcRows: 1 << 31}, nil, abi.StatusInvalidWindow},
		"box to nowhere":         {abi.Header{Op: abi.OpCopy3D}, abi.Copy3D{Dst: 4096, Src: staging, SrcPlace: abi.PlaceWindow, Width: 8, Height: 1, Depth: 1}, nil, abi.StatusInvalidAddress},
		"box of everything":      {abi.Header{Op: abi.OpCopy3D}, abi.Copy3D{Width: 1<<32 - 1, Height: 1<<32 - 1, Depth: 1<<32 - 1, DstPitch: 1<<32 - 1, SrcPitch: 1<<32 - 1, DstRows: 1<<32 - 1, SrcRows: 1<<32 - 1}, nil, abi.StatusInvalidValue},
		"rows at odd distances":  {abi.Header{Op: abi.OpSet}, abi.Set{Dst: 4096, Count: 1, Rows: 2, Pitch: 5, Width: 4}, nil, abi.StatusInvalidValue},
		"rows to nowhere":        {abi.Header{Op: abi.OpSet}, abi.Set{Dst: 4096, Count: 1, Rows: 2, Pitch: 8, Width: 4}, nil, abi.StatusInvalidAddress},
		"nothing to set":         {abi.Header{Op: abi.OpFunctionSetAttribute}, abi.Query{}, nil, abi.StatusInvalidHandle},
		"event kernels":          {abi.Header{Op: abi.OpEventKernelQuery}, abi.Handle{}, nil, abi.StatusInvalidHandle},
		"machine code":           {abi.Header{Op: abi.OpModuleLoad}, abi.Module{Format: abi.FormatCubin}, nil, abi.StatusNoBinary},
		"not PTX":                {abi.Header{Op: abi.OpModuleLoad}, abi.Module{Image: abi.Window{Offset: staging, Size: 16}}, nil, abi.StatusInvalidPTX},
		"image too large":        {abi.Header{Op: abi.OpModuleLoad}, abi.Module{Image: abi.Window{Offset: staging, Size: 1 << 40}}, nil, abi.StatusInvalidValue},
		"unknown attribute":      {abi.Header{Op: abi.OpDeviceAttribute}, abi.Query{Key: 0xfff}, nil, abi.StatusNotSupported},
		"no such event":          {abi.Header{Op: abi.OpEventWait}, abi.Handle{Handle: 5}, nil, abi.StatusInvalidHandle},
		"free of what is not it": {abi.Header{Op: abi.OpMemFree}, abi.Handle{Handle: 1}, nil, abi.StatusInvalidAddress},
	} {
		if got := g.call(c.h, c.p, c.more...); got.Status != c.want {
			t.Errorf("%s: %v, want %v", name, got.Status, c.want)
		}
	}
	if len(r.faults) != 0 || len(r.failures) != 0 {
		t.Errorf("refusals were taken for failures: %v, %v", r.faults, r.failures)
	}
	g.must(abi.OpNop, abi.Empty{}) // the channel is still usable
}

func TestFaultPoisonsTheContext(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(incPTX, "inc")
	bad, params := launchOf(fn, 1, 0xdead0000)
	g.send(abi.Header{Op: abi.OpLaunch}, bad, params...)
	g.send(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 8})
	g.send(abi.Header{Op: abi.OpFence}, abi.Empty{})
	cs := g.receive(3)
	if cs[0].Status != abi.StatusIllegalAddress {
		t.Errorf("launch: %v, want an illegal address", cs[0].Status)
	}
	r.stepUntil("the fault is reported", func() bool { return len(r.faults) > 0 })
	if c := g.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 8}); c.Status != abi.StatusIllegalAddress {
		t.Errorf("a command after the fault: %v, want the fault's status", c.Status)
	}
	c := g.must(abi.OpLastFault, abi.WindowArg{Window: abi.Window{Offset: staging, Size: 4096}})
	text := string(r.shared[staging : staging+c.Value[0]])
	for _, part := range []string{"illegal address", "inc", "0xdead0000", "line"} {
		if !strings.Contains(text, part) {
			t.Errorf("fault %q does not name %q", text, part)
		}
	}
	if len(r.faults) != 1 || r.faults[0].Code != uint32(abi.ErrorGPUFault) || r.faults[0].Text != text {
		t.Errorf("reported faults: %+v", r.faults)
	}
	if s := r.page.Context(0).State(); s != ipc.ContextFaulted {
		t.Errorf("state on the page: %v", s)
	}
}

func TestKernelTimeLimit(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{KernelTimeLimit: 5 * time.Millisecond})
	g := r.open()
	l, params := launchOf(g.load(spinPTX, "spin"), 1, 1<<62)
	if c := g.call(abi.Header{Op: abi.OpLaunch}, l, params...); c.Status != abi.StatusTimeLimit {
		t.Errorf("endless kernel: %v, want the time limit", c.Status)
	}
	r.stepUntil("the fault is reported", func() bool { return len(r.faults) > 0 })
	if r.faults[0].Code != uint32(abi.ErrorTimeLimit) {
		t.Errorf("reported: %+v", r.faults[0])
	}
}

// TestKernelTimeLimitChanges tests that a limit that the daemon sets while an endless kernel runs
// ends it, and that the newest limit is the one that holds.
func TestKernelTimeLimitChanges(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{KernelTimeLimit: time.Millisecond})
	r.page.SetKernelTimeLimit(0)
	g := r.open()
	l, params := launchOf(g.load(spinPTX, "spin"), 1, 50_000)
	if c := g.call(abi.Header{Op: abi.OpLaunch}, l, params...); c.Status != abi.StatusOK {
		t.Fatalf("without a limit: %v", c.Status)
	}
	l, params = launchOf(l.Function, 1, 1<<62)
	g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	r.stepUntil("it is on the GPU", func() bool { return r.page.Context(0).Outstanding() > 0 })
	r.page.SetKernelTimeLimit(5 * time.Millisecond)
	if c := g.receive(1)[0]; c.Status != abi.StatusTimeLimit {
		t.Errorf("endless kernel: %v, want the time limit", c.Status)
	}
}

func TestSuspensionStopsFetching(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	l, params := launchOf(g.load(spinPTX, "spin"), 1, 5000)
	for range 6 {
		g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	}
	slot := r.page.Context(0)
	for range 3 {
		r.x.Step(true)
	}
	if slot.Outstanding() != 0 || !slot.Backlog() {
		t.Fatalf("suspended from the start: %d outstanding, backlog %v", slot.Outstanding(), slot.Backlog())
	}
	r.x.Step(false) // some are fetched
	ahead := slot.Outstanding()
	if ahead == 0 || ahead > shallowLaunches {
		t.Errorf("%d launches on the GPU, want 1 to %d: their length is not known yet", ahead, shallowLaunches)
	}
	fetched := ahead + slot.Counters().Kernels // one may have ended in that step
	for slot.Outstanding() > 0 {               // what was fetched runs on, and nothing else
		r.x.Step(true)
	}
	if c := slot.Counters(); c.Kernels != fetched || c.LateTime == 0 || c.LateTime > c.GPUTime {
		t.Errorf("after the suspension: %+v, want %d kernels and their time counted as late", c, fetched)
	}
	if !slot.Backlog() {
		t.Error("commands wait, and the page doesn't say so")
	}
	for _, c := range g.receive(6) {
		if c.Status != abi.StatusOK {
			t.Error(c.Status)
		}
	}
}

func TestEvents(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	fn := a.load(spinPTX, "spin")
	ev1 := a.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	ev2 := a.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	if c := a.must(abi.OpEventQuery, abi.Handle{Handle: ev1}); c.Value[0] != abi.EventUnrecorded {
		t.Errorf("new event: %d", c.Value[0])
	}
	if c := a.call(abi.Header{Op: abi.OpEventElapsed}, abi.Elapsed{Start: ev1, End: ev2}); c.Status != abi.StatusInvalidHandle {
		t.Errorf("elapsed between events never recorded: %v", c.Status)
	}
	a.must(abi.OpEventRecord, abi.Handle{Handle: ev1})
	l, params := launchOf(fn, 1, 20000)
	a.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	a.send(abi.Header{Op: abi.OpEventRecord}, abi.Handle{Handle: ev2})
	r.x.Step(false)
	b.send(abi.Header{Op: abi.OpEventWait}, abi.Handle{Handle: ev2})
	b.send(abi.Header{Op: abi.OpTimestamp}, abi.Empty{})
	after := b.receive(2)[1].Value[0]
	cs := a.receive(2)
	if at := cs[1].Value[0]; at != cs[0].End || after < at {
		t.Errorf("launch ended at %d, event was at %d, the channel that waited went on at %d", cs[0].End, at, after)
	}
	if c := a.must(abi.OpEventElapsed, abi.Elapsed{Start: ev1, End: ev2}); c.Value[0] < cs[0].End-cs[0].Start {
		t.Errorf("elapsed %d ns, the kernel between took %d", c.Value[0], cs[0].End-cs[0].Start)
	}
}

func TestQuietCommands(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	g.send(abi.Header{Op: abi.OpNop, Flags: abi.FlagQuiet}, abi.Empty{})
	g.send(abi.Header{Op: abi.OpMemFree, Flags: abi.FlagQuiet}, abi.Handle{Handle: 1})
	g.send(abi.Header{Op: abi.OpNop}, abi.Empty{})
	cs := g.receive(2)
	if cs[0].Status != abi.StatusInvalidAddress || cs[0].Seq != 2 || cs[1].Seq != 3 {
		t.Errorf("got %+v, want the quiet command's failure and the last", cs)
	}
	if n := r.page.Context(0).Counters().Errors; n != 1 {
		t.Errorf("%d errors counted, want 1", n)
	}
}

func TestFullCompletionRing(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	for range ringEntries {
		g.send(abi.Header{Op: abi.OpNop}, abi.Empty{})
	}
	r.stepUntil("the completion ring is full", func() bool { n, err := g.com.Pending(); return err == nil && n == ringEntries })
	for range 8 { // nobody reads, and nothing is lost
		g.send(abi.Header{Op: abi.OpNop}, abi.Empty{})
	}
	for range 10 {
		r.x.Step(false)
	}
	for i, c := range g.receive(ringEntries + 8) {
		if c.Cookie != uint64(i+1) {
			t.Fatalf("completion %d has cookie %d", i, c.Cookie)
		}
	}
}

func TestBrokenRingsEndTheChannelAlone(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	r.open()
	b := r.open()
	page := r.shared[abi.ChannelPage(0) : abi.ChannelPage(0)+abi.PageSize]
	abi.StoreWord(page, abi.SubmissionPutWord, 1<<20)
	r.x.Step(false)
	want := []ipc.ChannelFailure{{Index: 0, Code: uint32(abi.ErrorPutRange)}}
	if diff := cmp.Diff(want, r.failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}

	b.must(abi.OpNop, abi.Empty{})
}

func TestRunSleepsAndWakes(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	done := make(chan error)
	runCtx, stop := context.WithCancel(t.Context())
	go func() { done <- r.x.Run(runCtx) }()
	slot := r.page.Context(0)
	for i := range 5 {
		for slot.Counters().Wakeups < uint64(i+1) { // it has gone to sleep
			sched.Yield()
		}
		g.n++
		e := g.sub.Next()
		abi.Empty{}.Encode(e)
		abi.Header{Op: abi.OpNop, Cookie: g.n}.Encode(e)
		if g.sub.Publish() {
			slot.Wake() // what vm does for a doorbell
		}
		buf := make([]abi.Completion, 1)
		for n := 0; n == 0; {
			var err error
			if n, _, err = g.com.Fetch(buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
