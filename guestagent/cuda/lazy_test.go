package cuda

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"vgpud/guestagent/driver/drivertest"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/guestagent/tasks"
	"vgpud/mediator/vgpu/abi"
)

// TestLazyProgram: what a program does before its first launch needs no GPU, and the launch finds all of
// it where the program left it. Afterwards nothing is recorded.
func TestLazyProgram(t *testing.T) {
	h, x := newFloating(t, drivertest.Options{})
	_, inc := h.load(incPTX, "inc")
	a, b := h.alloc(1000), h.alloc(3<<20)
	var s, e Handle
	want(t, "stream", h.call("cuStreamCreate", word(unsafe.Pointer(&s)), 0), Success)
	want(t, "event", h.call("cuEventCreate", word(unsafe.Pointer(&e)), eventDisableTiming), Success)
	src := []byte("hello")
	want(t, "copy in", h.call("cuMemcpyHtoD_v2", a+1, word(startOf(src)), 5), Success)
	copy(src, "other") // the program may use its memory again
	want(t, "set", h.call("cuMemsetD8Async", b, 7, 3<<20, uint64(s)), Success)
	want(t, "record", h.call("cuEventRecord", uint64(e), uint64(s)), Success)
	want(t, "wait", h.call("cuStreamWaitEvent", 0, uint64(e), 0), Success)
	want(t, "copy", h.call("cuMemcpyDtoDAsync_v2", b+8, a, 6, uint64(s)), Success)
	for _, f := range []string{"cuStreamQuery", "cuStreamSynchronize"} {
		want(t, f, h.call(f, uint64(s)), Success)
	}
	want(t, "the event", h.call("cuEventQuery", uint64(e)), Success)
	want(t, "synchronize", h.call("cuCtxSynchronize"), Success)
	if got := h.read(b, 16); string(got) != sevens+"\x00hello\x07\x07" {
		t.Errorf("before the launch: %q", got)
	}
	var free, total, pooled uint64
	want(t, "pool", h.call("cuMemAllocAsync", word(unsafe.Pointer(&pooled)), 100, uint64(s)), Success)
	want(t, "pool", h.call("cuMemFreeAsync", pooled, uint64(s)), Success)
	want(t, "memory", h.call("cuMemGetInfo_v2", word(unsafe.Pointer(&free)), word(unsafe.Pointer(&total))), Success)
	if total != floatingMemory || total-free < 3<<20 || total-free > 4<<20 {
		t.Errorf("%d of %d bytes are free", free, total)
	}
	if n := h.contexts(); len(n) != 0 {
		t.Fatalf("contexts of %d bytes before the launch", n)
	}
	small := h.alloc(100) // in a's region
	gone := h.alloc(1 << 20)
	want(t, "free", h.call("cuMemFree_v2", gone), Success)
	want(t, "launch", h.launch(inc, b+8, 6), Success)
	if n := h.contexts(); !slices.Equal(n, []uint64{0}) {
		t.Errorf("contexts of %d bytes", n)
	}
	if got := h.read(b, 16); string(got) != sevens+"\x01ifmmp\x07\x07" {
		t.Errorf("after it: %q", got)
	}
	if got := h.read(a, 8); string(got) != "\x00hello\x00\x00" {
		t.Errorf("after it: %q", got)
	}
	want(t, "a copy in the stream", h.call("cuMemcpyDtoDAsync_v2", a, b, 8, uint64(s)), Success)
	want(t, "synchronize", h.call("cuStreamSynchronize", uint64(s)), Success)
	if got := h.read(a, 8); !bytes.Equal(got, bytes.Repeat([]byte{7}, 8)) {
		t.Errorf("copied: %q", got)
	}
	want(t, "free what shares its memory", h.call("cuMemFree_v2", small), Success)
	if got := h.read(a, 8); !bytes.Equal(got, bytes.Repeat([]byte{7}, 8)) {
		t.Errorf("what is beside it: %q", got)
	}
	c := h.alloc(1 << 20) // by the device
	want(t, "free what was recorded", h.call("cuMemFree_v2", b), Success)
	want(t, "free what was not", h.call("cuMemFree_v2", c), Success)
	want(t, "a launch on what was freed", h.launch(inc, b, 1), Success)
	want(t, "its end", h.call("cuCtxSynchronize"), ErrorIllegalAddress)
	want(t, "destroy", h.call("cuCtxDestroy_v2", uint64(x)), Success)
}

// TestNeverBegins: a program that launches nothing needs no GPU, and its context ends.
func TestNeverBegins(t *testing.T) {
	h, x := newFloating(t, drivertest.Options{})
	m, _ := h.load(incPTX, "inc")
	p := h.alloc(1 << 20)
	want(t, "set", h.call("cuMemsetD8_v2", p, 1, 1<<20), Success)
	want(t, "unload", h.call("cuModuleUnload", uint64(m)), Success)
	want(t, "destroy", h.call("cuCtxDestroy_v2", uint64(x)), Success)
	if n := h.contexts(); len(n) != 0 {
		t.Errorf("contexts of %d bytes", n)
	}
	if n := len(h.c.d.reserved.pieces); n != 0 {
		t.Errorf("%d pieces of addresses are still kept", n)
	}
	var y Handle
	want(t, "another", h.call("cuCtxCreate_v2", word(unsafe.Pointer(&y)), 0, 0), Success)
	if !get[Context](&h.c.d.objects, y).pending() {
		t.Error("the next context has a GPU from the start")
	}
}

// TestBeginsAtOnce: what can't be recorded begins the task and is carried out.
func TestBeginsAtOnce(t *testing.T) {
	for name, f := range map[string]func(h *floating) Result{
		"a function that is not recorded": func(h *floating) Result {
			var limit uint64
			return h.call("cuCtxGetLimit", word(unsafe.Pointer(&limit)), abi.LimitHeapBytes)
		},
		"an event with a time": func(h *floating) Result {
			var e Handle
			want(h.t, "event", h.call("cuEventCreate", word(unsafe.Pointer(&e)), 0), Success)
			return h.call("cuEventRecord", uint64(e), 0)
		},
		"code that is not PTX": func(h *floating) Result {
			var m Handle
			return h.call("cuModuleLoadData", word(unsafe.Pointer(&m)), word(startOf([]byte(".version 7.0\nnonsense\x00"))))
		},
		"a copy over the bound": func(h *floating) Result {
			b := make([]byte, 65<<20)
			return h.call("cuMemcpyHtoD_v2", h.alloc(uint64(len(b))), word(startOf(b)), uint64(len(b)))
		},
		"memory close to the limit": func(h *floating) Result {
			h.alloc(floatingMemory - 8<<20)
			return Success
		},
		"stream-ordered memory close to the limit": func(h *floating) Result {
			var p uint64
			return h.call("cuMemAllocAsync", word(unsafe.Pointer(&p)), floatingMemory-8<<20, 0)
		},
		"a second context": func(h *floating) Result {
			var x Handle
			return h.call("cuCtxCreate_v2", word(unsafe.Pointer(&x)), 0, 0)
		},
		"a primary context beside it": func(h *floating) Result {
			var x Handle
			return h.call("cuDevicePrimaryCtxRetain", word(unsafe.Pointer(&x)), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, x := newFloating(t, drivertest.Options{})
			p := h.alloc(100)
			want(t, "set", h.call("cuMemsetD8_v2", p, 3, 100), Success)
			before := h.contexts()
			want(t, name, f(h), Success)
			if len(before) != 0 || len(h.contexts()) == 0 || get[Context](&h.c.d.objects, x).pending() {
				t.Errorf("contexts %d before, %d after", before, h.contexts())
			}
			want(t, "make it current", h.call("cuCtxSetCurrent", uint64(x)), Success)
			if got := h.read(p, 100); !bytes.Equal(got, bytes.Repeat([]byte{3}, 100)) {
				t.Errorf("it holds %q", got)
			}
		})
	}
}

// TestTooMuch: what no GPU could hold fails at once, without one.
func TestTooMuch(t *testing.T) {
	h, _ := newFloating(t, drivertest.Options{})
	h.alloc(floatingMemory / 2)
	var p uint64
	for _, n := range []uint64{floatingMemory, floatingMemory/2 + 1, 1<<64 - 1} {
		want(t, "allocate", h.call("cuMemAlloc_v2", word(unsafe.Pointer(&p)), n), ErrorOutOfMemory)
	}
	if n := h.contexts(); len(n) != 0 {
		t.Errorf("contexts of %d bytes", n)
	}
}

// TestFailedStart: a task that got no GPU may begin later.
func TestFailedStart(t *testing.T) {
	h, _ := newFloating(t, drivertest.Options{})
	_, inc := h.load(incPTX, "inc")
	p := h.alloc(4)
	h.mu.Lock()
	h.refuse = 1
	h.mu.Unlock()
	if r := h.launch(inc, p, 4); r == Success {
		t.Error("launched without a GPU")
	}
	want(t, "set", h.call("cuMemsetD8_v2", p, 1, 4), Success)
	want(t, "launch", h.launch(inc, p, 4), Success)
	if got := h.read(p, 4); string(got) != "\x02\x02\x02\x02" {
		t.Errorf("%q", got)
	}
}

// TestStartFailsBetweenSlices: a call that waits has the result of the attempt that it waits for, even if
// that ends while its thread has its signals. It does not begin another.
func TestStartFailsBetweenSlices(t *testing.T) {
	h, x := newFloating(t, drivertest.Options{})
	p := h.alloc(4)
	k := get[Context](&h.c.d.objects, x).task
	s := &start{cancel: func() {}, done: make(chan struct{})}
	k.mu.Lock()
	k.starting = s
	k.mu.Unlock()
	want(t, "what begins the task", h.callOnce("cuMemsetD8_v2", p, 0, 4), again)
	k.mu.Lock()
	s.result, k.starting = ErrorOutOfMemory, nil
	close(s.done)
	k.mu.Unlock()
	if r, _ := h.c.done(h.c.d.Again(h.c.t)); r != ErrorOutOfMemory || len(h.contexts()) != 0 {
		t.Errorf("the call that waited: %v; contexts of %d bytes", r, h.contexts())
	}
	want(t, "the next call", h.call("cuMemsetD8_v2", p, 0, 4), Success)
}

// TestLateErrors: an error of the host's compiler is the result of what uses the module.
func TestLateErrors(t *testing.T) {
	h, _ := newFloating(t, drivertest.Options{})
	bad := "\n" + incPTX // parsed, but refused by the host, which wants a directive first
	m, f := h.load(bad, "inc")
	_, good := h.load(incPTX, "inc")
	_, missing := h.load(incPTX, "missing")
	p := h.alloc(4)
	want(t, "a kernel of a bad module", h.launch(f, p, 4), ErrorInvalidPtx)
	want(t, "the module", h.call("cuModuleUnload", uint64(m)), ErrorInvalidPtx)
	want(t, "another's", h.launch(good, p, 4), Success)
	want(t, "a kernel that is not there", h.launch(missing, p, 4), ErrorNotFound)
	text := append([]byte("none"), 0)
	h2, _ := newFloating(t, drivertest.Options{})
	m, _ = h2.load(incPTX, "inc")
	want(t, "a name that is none", h2.call("cuModuleGetFunction", word(unsafe.Pointer(&f)), uint64(m), word(startOf(text))), ErrorNotFound)
}

// TestEndsWhileBeginning: a context may be destroyed while its task waits for a GPU, and the thread
// that waits has its signals and then an error.
func TestEndsWhileBeginning(t *testing.T) {
	h, d := newNeverReady(t)
	var x Handle
	want(t, "create", h.call("cuCtxCreate_v2", word(unsafe.Pointer(&x)), 0, 0), Success)
	p := h.alloc(1 << 20)
	var limit uint64
	args := []uint64{word(unsafe.Pointer(&limit)), 0}
	want(t, "what begins the task", h.callOnce("cuCtxGetLimit", args...), again)
	want(t, "it waits", d.Again(h.c.t), again)
	other := &floating{Host: h.Host, t: t, c: d.thread(NewThread(2, 16))}
	want(t, "make it current", other.call("cuCtxSetCurrent", uint64(x)), Success)
	want(t, "free meanwhile", other.call("cuMemFree_v2", p), Success)
	want(t, "set meanwhile", other.callOnce("cuMemsetD8_v2", p, 0, 1), again)
	third := &floating{Host: h.Host, t: t, c: d.thread(NewThread(3, 16))}
	want(t, "make it current", third.call("cuCtxSetCurrent", uint64(x)), Success)
	want(t, "launch meanwhile", third.callOnce("cuLaunchKernel", 0, 9, 1, 1, 9, 1, 1, 0, 0, 0, 0), again)
	if begins := get[Context](&d.objects, x).task; begins.first.Blocks != 0 {
		t.Errorf("who begins the task is told of another's launch: %+v", begins.first)
	}
	want(t, "destroy", other.call("cuCtxDestroy_v2", uint64(x)), Success)
	for _, c := range []*Call{h.c, other.c, third.c} {
		if r, _ := c.done(d.Again(c.t)); r != ErrorContextIsDestroyed {
			t.Errorf("the call that waited: %v", r)
		}
	}
	if d.unbegun.Load() != nil {
		t.Error("a context without a task is left")
	}
	if err := d.gpu.Close(); err != nil {
		t.Error(err)
	}
}

// TestLimitsThatNeedMemory: limits for which a GPU may have too little memory are not recorded. Their
// program would be told that it has them, and each later call would fail.
func TestLimitsThatNeedMemory(t *testing.T) {
	for name, c := range map[string]struct {
		limit  uint32
		v      uint64
		before uint64 // of heap
		want   Result
	}{
		"a small heap": {abi.LimitHeapBytes, 16 << 20, 0, Success}, "a large heap": {abi.LimitHeapBytes, 100 << 20, 0, again},
		"two that are large together":       {abi.LimitPrintfBytes, 30 << 20, 30 << 20, again},
		"a heap that takes another's place": {abi.LimitHeapBytes, 30 << 20, 30 << 20, Success},
		"small stacks":                      {abi.LimitStackBytes, 4 << 10, 0, Success}, "stacks for all threads": {abi.LimitStackBytes, 64 << 10, 0, again},
		"2^64-1 bytes of stack": {abi.LimitStackBytes, 1<<64 - 1, 0, again},
	} {
		h, d := newNeverReady(t)
		d.device.attributes = map[uint32]int32{DeviceAttributeMultiprocessorCount: 4, DeviceAttributeMaxThreadsPerMultiprocessor: 1024}
		var x Handle
		want(t, "create", h.call("cuCtxCreate_v2", word(unsafe.Pointer(&x)), 0, 0), Success)
		if c.before > 0 {
			want(t, name, h.call("cuCtxSetLimit", abi.LimitHeapBytes, c.before), Success)
		}
		want(t, name, h.callOnce("cuCtxSetLimit", uint64(c.limit), c.v), c.want)
		other := d.thread(NewThread(2, 16))
		h.c, other = other, h.c
		want(t, "destroy", h.call("cuCtxDestroy_v2", uint64(x)), Success)
		if c.want == again {
			if r, _ := other.done(d.Again(other.t)); r != ErrorContextIsDestroyed {
				t.Errorf("%s: %v", name, r)
			}
		}
		if err := d.gpu.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNotLazy: a context has a GPU from the start where GPUs may differ, where it does not float, and
// where the program's user wants that.
func TestNotLazy(t *testing.T) {
	all := abi.AllFeatures &^ abi.FeatureIdentity
	for name, c := range map[string]struct {
		features abi.Features
		variable string
	}{
		"GPUs that differ": {all &^ abi.FeatureAlike, ""}, "no addresses for all GPUs": {all &^ abi.FeatureChosenAddresses, ""},
		"one GPU": {all &^ abi.FeatureFloating, ""}, "turned off": {all, "OFF"},
	} {
		t.Setenv(lazyVariable, c.variable)
		h, x := newFloating(t, drivertest.Options{Features: c.features})
		if x := get[Context](&h.c.d.objects, x); x.task != nil || x.gpu == nil {
			t.Errorf("%s: the context has no GPU", name)
		}
	}
}

// TestPeaks: a program that was not seen before asks for all of its guest's memory, and the next runs
// that record the same for what one had at most. One for which that was not enough has the next ask
// for all again.
func TestPeaks(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	run := func(recorded, more uint64, fails bool) uint64 {
		t.Helper()
		h, x := newFloating(t, drivertest.Options{})
		_, inc := h.load(incPTX, "inc")
		p := h.alloc(recorded)
		n := uint32(4)
		params := []Pointer{Pointer(&p), Pointer(&n)}
		for _, blocks := range []uint64{3, 5} {
			want(t, "launch", h.call("cuLaunchKernel", uint64(inc), blocks, 2, 1, 32, 2, 1, 0, 0, word(unsafe.Pointer(&params[0])), 0), Success)
		}
		h.alloc(more)
		if fails {
			want(t, "more than there is", h.call("cuMemAlloc_v2", word(unsafe.Pointer(&p)), 2<<30), ErrorOutOfMemory)
		}
		var free, total uint64
		want(t, "memory", h.call("cuMemGetInfo_v2", word(unsafe.Pointer(&free)), word(unsafe.Pointer(&total))), Success)
		all := h.contexts()
		if len(all) != 1 || all[0] > 0 && total != floatingMemory {
			t.Fatalf("contexts of %d bytes, the program sees %d of %d bytes", all, free, total)
		}
		if known, blocks := all[0] > 0, h.register(abi.TaskBlocks); known && (blocks != 10 || h.register(abi.TaskThreads) != 64) {
			t.Errorf("it asks for %d blocks of %d threads", blocks, h.register(abi.TaskThreads))
		}
		want(t, "destroy", h.call("cuCtxDestroy_v2", uint64(x)), Success)
		return all[0]
	}
	const recorded, more = 1 << 20, 5 << 20
	for i, c := range []struct {
		recorded, more uint64
		fails          bool
		want           uint64
	}{
		{recorded, more, false, 0}, {recorded, more, false, recorded + more}, {recorded, more / 2, false, recorded + more},
		{2 * recorded, more, false, 0},
		{recorded, more, true, recorded + more}, {recorded, 2 * more, false, 0}, {recorded, more, false, recorded + 2*more},
	} {
		if got := run(c.recorded, c.more, c.fails); got != c.want {
			t.Errorf("run %d asks for %d bytes, want %d", i, got, c.want)
		}
	}
}

// TestPeaksAreNobodyElses: another program, or one with other arguments, is not known.
func TestPeaksAreNobodyElses(t *testing.T) {
	proc := t.TempDir()
	key := func(exe, args, gpu string) cache.Key {
		t.Helper()
		link := filepath.Join(proc, "exe")
		_ = os.Remove(link) // there is none at first
		if err := errors.Join(os.Symlink(exe, link), os.WriteFile(filepath.Join(proc, "cmdline"), []byte(args), 0o600)); err != nil {
			t.Fatal(err)
		}
		k, name, ok := programKey(proc, gpu, tasks.New(tasks.Options{}))
		if !ok || name != filepath.Base(exe) {
			t.Fatalf("%q, %v", name, ok)
		}
		return k
	}
	a, b := filepath.Join(proc, "a"), filepath.Join(proc, "b")
	if err := errors.Join(os.WriteFile(a, []byte("x"), 0o600), os.WriteFile(b, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	k := key(a, "a\x00-n\x001", "gpu")
	if key(a, "./a\x00-n\x001", "gpu") != k {
		t.Error("the name that it was called by matters")
	}
	for what, other := range map[string]cache.Key{
		"other arguments": key(a, "a\x00-n1", "gpu"), "another GPU": key(a, "a\x00-n\x001", "gpu2"), "another program": key(b, "a\x00-n\x001", "gpu"),
	} {
		if other == k {
			t.Errorf("%s make no difference", what)
		}
	}
	if err := os.WriteFile(a, []byte("built anew"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key(a, "a\x00-n\x001", "gpu") == k {
		t.Error("a program that was built anew is the same")
	}
	if _, _, ok := programKey(t.TempDir(), "gpu", tasks.New(tasks.Options{})); ok {
		t.Error("a process that is not there has a key")
	}
}

// TestRecordedNames: all of them are functions that are built.
func TestRecordedNames(t *testing.T) {
	for _, name := range recordedNames {
		if i, ok := functionNumbers[name]; !ok || calls[i] == nil {
			t.Errorf("%s is not built", name)
		}
	}
}
