package nvidia

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// countPTX has a kernel whose first thread stores its parameter at out, after an instruction more.
const countPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 out, .param .u32 v) {
	.reg .b64 %%rd<3>;
	.reg .b32 %%r<4>;
	.reg .pred %%p;
	%s
	ld.param.u64 %%rd1, [out];
	ld.param.u32 %%r1, [v];
	mov.u32 %%r2, %%tid.x;
	mov.u32 %%r3, %%ctaid.x;
	or.b32 %%r2, %%r2, %%r3;
	setp.ne.u32 %%p, %%r2, 0;
	@%%p bra end;
	st.global.u32 [%%rd1], %%r1;
end:
	ret;
}
`

// TestHardwareEventKernels launches events of kernels of several shapes by stores, checks each answer, and
// reports how long they take; and has calls that wait for kernels beside them.
func TestHardwareEventKernels(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{KernelTimeLimit: 5 * time.Second})
	f, area := sealedFile(t, abi.EventAreaBytes)
	if _, err := c.MapEvents(f); err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		name, more    string
		blocks, block uint32
	}{
		{"one warp", "", 1, 32}, {"one block of 128", "", 1, 128}, {"one block of 1024", "", 1, 1024}, {"8 blocks of 128", "", 8, 128},
		{"66 blocks of 256", "", 66, 256},
		{"one warp by the host", "mov.u64 %rd2, %gridid;", 1, 32}, // it can't be called
	} {
		t.Run(s.name, func(t *testing.T) {
			l, answer := registerStore(t, c, area, 0, s.more, s.blocks, s.block)
			measure := func(what string, v func(i uint32) uint32) {
				var took []time.Duration
				for i := range uint32(3000) {
					pause := time.Duration(rand.Int64N(10_000)) * time.Nanosecond
					for begin := time.Now(); time.Since(begin) < pause; {
					}
					took = append(took, fireStore(t, c, l, answer, v(i)))
				}
				slices.Sort(took)
				n := countsOf(t, c, 0)
				t.Logf("%s: p50 %v, p99 %v, longest %v; as the GPU saw it p50 %v, p99 %v; %d of %d, resident %v", what, took[len(took)/2], took[len(took)*99/100],
					took[len(took)-1], n.P50, n.P99, n.Ended, n.Started, n.Resident)
			}
			measure("parameters that change", func(i uint32) uint32 { return i + 1 })
			for range l.Entries() {
				e, _ := l.Free()
				binary.LittleEndian.PutUint32(l.Params(e)[8:], prepared)
				fireStore(t, c, l, answer, prepared)
			}
			measure("parameters prepared once", func(uint32) uint32 { return prepared })
			begin := time.Now()
			if err := c.Free(alloc(t, c, 4096)); err != nil {
				t.Fatal(err)
			}
			t.Logf("allocate and free beside it: %v", time.Since(begin))
			fireStore(t, c, l, answer, 7)
			unregister(t, c, 0)
		})
	}
	t.Run("all numbers", func(t *testing.T) {
		var ls []*eventqueue.Launcher
		var answers [][]byte
		for i := range abi.MaxEventKernels {
			l, answer := registerStore(t, c, area, i, "", 1, 32)
			ls, answers = append(ls, l), append(answers, answer)
		}
		var took []time.Duration
		for round := range uint32(500) {
			begin := make([]time.Time, len(ls))
			for i, l := range ls {
				e, _ := l.Free()
				binary.LittleEndian.PutUint32(l.Params(e)[8:], round+1)
				begin[i] = time.Now()
				if l.Launch() {
					c.KickEvents()
				}
			}
			for left := len(ls); left > 0; {
				for i, l := range ls {
					if _, ok := l.Done(); ok && !begin[i].IsZero() {
						took = append(took, time.Since(begin[i]))
						begin[i] = time.Time{}
						left--
						if got := binary.LittleEndian.Uint32(answers[i]); got != round+1 {
							t.Fatalf("kernel %d answers %d in round %d", i, got, round+1)
						}
						l.Complete()
					}
				}
				if err := c.Fault(); err != nil {
					t.Fatal(err)
				}
			}
		}
		slices.Sort(took)
		t.Logf("%d at once: p50 %v, p99 %v, longest %v", len(ls), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
		for i := range ls {
			unregister(t, c, i)
		}
	})
	if err := c.Fault(); err != nil {
		t.Error(err)
	}
}

// registerStore registers the kernel that stores its parameter in the queue's spare room.
func registerStore(t *testing.T, c *Context, area []byte, number int, more string, blocks, block uint32) (*eventqueue.Launcher, []byte) {
	t.Helper()
	m, err := c.LoadModule(fmt.Appendf(nil, countPTX, more))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("store")
	if err != nil {
		t.Fatal(err)
	}
	offset := abi.EventQueue(number) + abi.EventQueueBytes - 64
	params := make([]byte, 12)
	binary.LittleEndian.PutUint64(params, uint64(c.events.at)+uint64(offset))
	begin := time.Now()
	if err := c.RegisterEventKernel(&gpu.EventKernel{Number: number, Handle: 1, Entries: 16, Launch: gpu.Launch{
		Function: f, Grid: gpu.Dim3{X: blocks, Y: 1, Z: 1}, Block: gpu.Dim3{X: block, Y: 1, Z: 1}, Params: params,
	}}); err != nil {
		t.Fatal(err)
	}
	if number == 0 {
		t.Logf("registered in %v, with a dispatcher: %v", time.Since(begin), c.events.rows[number].Load().d != nil)
	}
	l, err := eventqueue.Attach(area, number)
	if err != nil {
		t.Fatal(err)
	}
	return l, area[offset : offset+4]
}

// prepared is what all entries' parameters say at last.
const prepared = 4711

// fireStore launches an event and waits for its answer. Where v is prepared the parameters stay as
// they are.
func fireStore(t *testing.T, c *Context, l *eventqueue.Launcher, answer []byte, v uint32) time.Duration {
	t.Helper()
	e, ok := l.Free()
	if !ok {
		t.Fatal("no free entry")
	}
	if v != prepared {
		binary.LittleEndian.PutUint32(l.Params(e)[8:], v)
	}
	begin := time.Now()
	if l.Launch() {
		c.KickEvents()
	}
	for n := 0; ; n++ {
		if _, ok := l.Done(); ok {
			break
		}
		if n%100000 == 99999 && time.Since(begin) > 10*time.Second {
			t.Fatalf("no answer in 10 s: %+v, fault %v", countsOf(t, c, 0), c.Fault())
		}
	}
	took := time.Since(begin)
	if got := binary.LittleEndian.Uint32(answer); got != v {
		t.Fatalf("the answer is %d, want %d", got, v)
	}
	l.Complete()
	return took
}

func countsOf(t *testing.T, c *Context, number int) gpu.EventKernelCounts {
	t.Helper()
	list, err := c.EventKernelCounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		if n.Number == number {
			return n
		}
	}
	t.Fatalf("no counts of %d", number)
	return gpu.EventKernelCounts{}
}

func unregister(t *testing.T, c *Context, number int) {
	t.Helper()
	gone, err := c.UnregisterEventKernel(number)
	for begin := time.Now(); !gone && err == nil && time.Since(begin) < 10*time.Second; {
		gone = c.events.rows[number].Load() == nil
	}
	if !gone {
		t.Fatalf("kernel %d is not gone: %v", number, err)
	}
}
