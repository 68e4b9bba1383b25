package driver_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// workPTX has a kernel that has every form, and one that waits for all blocks of its grid.
const workPTX = `.version 7.0
.target sm_80
.address_size 64

.visible .entry work(.param .u64 out)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %ctaid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r1;
	ret;
}

.visible .entry cluster() .explicitcluster .reqnctapercluster 2
{
	ret;
}
`

// workKernels are the host's kernels; each call takes as long as took returns.
func workKernels(took func(drivertest.Call) time.Duration) map[string]drivertest.Kernel {
	return map[string]drivertest.Kernel{"work": {Params: []int{8}, Duration: took}, "cluster": {}}
}

const (
	early = abi.PreemptSingle | abi.PreemptCoarse
	every = early | abi.PreemptPersistent
)

// long takes 10 ms for the original; the single form costs 10 %, the coarse one 1 % and the
// persistent one 3 %.
func long(c drivertest.Call) time.Duration {
	percent := map[abi.PreemptForm]time.Duration{0: 100, abi.PreemptSingle: 110, abi.PreemptCoarse: 101, abi.PreemptPersistent: 103}
	return 100 * time.Microsecond * percent[c.Preempt.Form]
}

// scene is a context with preemptible kernels.
type scene struct {
	t    testing.TB
	host *drivertest.Host
	gpu  *driver.Context
	mod  *driver.Module
	work *driver.Function
}

func newScene(t testing.TB, opts drivertest.Options, o driver.ContextOptions) *scene {
	t.Helper()
	if opts.Kernels == nil {
		opts.Kernels = workKernels(long)
	}
	host, dev, first := open(t, opts)
	check(t, first.Close())
	s := &scene{t: t, host: host}
	s.gpu = must[*driver.Context](t)(dev.NewContext(t.Context(), o))
	s.mod = must[*driver.Module](t)(s.gpu.LoadModule(t.Context(), []byte(workPTX)))
	s.work = must[*driver.Function](t)(s.mod.Function(t.Context(), "work"))
	return s
}

const blocks = 4096

// TestSoonestOfBothForms makes and measures the default forms, the early exit and persistent
// blocks. If both cost nothing, launches use the one that leaves sooner, even if the other is
// cheaper; otherwise they use the cheaper one.
func TestSoonestOfBothForms(t *testing.T) {
	for percent, want := range map[time.Duration]abi.PreemptForm{99: abi.PreemptPersistent, 101: abi.PreemptCoarse, 103: abi.PreemptCoarse} {
		took := func(c drivertest.Call) time.Duration {
			switch c.Preempt.Form {
			case abi.PreemptCoarse:
				return 9800 * time.Microsecond
			case abi.PreemptPersistent:
				return percent * 100 * time.Microsecond
			}
			return long(c)
		}
		s := newScene(t, drivertest.Options{Kernels: workKernels(took)}, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
		if p := s.work.Preemption(); p.Forms != every {
			t.Errorf("forms: %+v", p)
		}
		if got := s.launch(100, nil); got.Preempt.Form != want {
			t.Errorf("where persistent blocks take %d %%: launched %+v, %+v", percent, got, s.work.Preemption().Classes)
		}
	}
}

// launch launches the kernel n times, one after the other, and returns the last call.
func (s *scene) launch(n int, change func(*driver.Launch)) drivertest.Call {
	s.t.Helper()
	ctx := s.t.Context()
	l := driver.Launch{Function: s.work, Grid: driver.Dim{X: blocks}, Block: driver.Dim{X: 64}, Params: make([]byte, 8)}
	if change != nil {
		change(&l)
	}
	var p driver.Pending
	for range n {
		check(s.t, s.gpu.Own().Enqueue(ctx, &p, &l))
		check(s.t, p.Wait(ctx))
	}
	calls := s.host.GPU(0).Calls()
	return calls[len(calls)-1]
}

func TestPreemptibleByCost(t *testing.T) {
	s := newScene(t, drivertest.Options{}, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
	if p := s.work.Preemption(); p.Forms != every || p.Reason != "" {
		t.Errorf("forms: %+v", p)
	}
	if text := s.host.GPU(0).Image(); !strings.HasPrefix(text, workPTX) {
		t.Errorf("loaded:\n%s", text)
	}
	if second := s.launch(2, nil); second.Preempt.Form != 0 {
		t.Errorf("the second launch is %+v, which is to measure the original", second)
	}
	last := s.launch(99, nil)
	if want := (drivertest.Call{Kernel: "work", Preempt: last.Preempt, Grid: [3]uint32{blocks, 1, 1}}); last != want || last.Preempt.Form != abi.PreemptCoarse {
		t.Errorf("after a hundred: %+v", last)
	}
	p := s.work.Preemption()
	if len(p.Classes) != 1 || p.Classes[0].Why != tune.WhyCheapest || p.Launches != 101 || p.Preemptible == 0 || p.Preemptible >= p.Launches {
		t.Errorf("%+v", p)
	}
	if n := s.host.GPU(0).OccupancyQueries(); n != 4 { // of the original and its forms
		t.Errorf("asked %d times for the occupancy", n)
	}
	// The task time shows how many slots the tuner assumes: those that the host reports.
	if got, want := p.Classes[0].Task, 10*time.Millisecond*drivertest.SMs*drivertest.PerSM/blocks; got < want*99/100 || got > want*101/100 {
		t.Errorf("a task is %v, want %v", got, want)
	}
}

// TestForced launches in the form that each launch asks for.
func TestForced(t *testing.T) {
	s := newScene(t, drivertest.Options{}, driver.ContextOptions{Preempt: &driver.PreemptOptions{Forms: every}})
	if p := s.work.Preemption(); p.Forms != every {
		t.Fatalf("forms: %+v", p)
	}
	for _, c := range []struct {
		ask  driver.Preempt
		want abi.Preempt
	}{
		{driver.Preempt{}, abi.Preempt{}},
		{driver.Preempt{Form: abi.PreemptSingle}, abi.Preempt{Form: abi.PreemptSingle, Group: 1, Every: 1}},
		{driver.Preempt{Form: abi.PreemptCoarse}, abi.Preempt{Form: abi.PreemptCoarse, Group: 8, Every: 1}},
		{driver.Preempt{Form: abi.PreemptPersistent, Group: 4, Every: 3}, abi.Preempt{Form: abi.PreemptPersistent, Group: 4, Every: 3}},
	} {
		if got := s.launch(1, func(l *driver.Launch) { l.Preempt = &c.ask }); got.Preempt != c.want {
			t.Errorf("%+v: %+v", c.ask, got)
		}
	}
	for _, bad := range []driver.Preempt{{Form: 3}, {Form: abi.PreemptSingle, Group: 2}, {Form: abi.PreemptPersistent, Group: 1 << 30}} {
		l := driver.Launch{Function: s.work, Preempt: &bad, Params: make([]byte, 8)}
		var p driver.Pending
		if err := s.gpu.Own().Enqueue(t.Context(), &p, &l); err == nil || !p.Done() {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	l := driver.Launch{Function: s.work, Grid: driver.Dim{X: 1 << 20, Y: 16}, Preempt: &driver.Preempt{Form: abi.PreemptSingle}, Params: make([]byte, 8)}
	if err := s.gpu.Own().Enqueue(t.Context(), new(driver.Pending), &l); err == nil {
		t.Error("more units than can be noted as skipped")
	}
}

func TestPriorities(t *testing.T) {
	s := newScene(t, drivertest.Options{}, driver.ContextOptions{Priority: 3})
	for want, change := range map[int32]func(*driver.Launch){
		3:  nil,
		-7: func(l *driver.Launch) { l.Priority = -7 },
		-9: func(l *driver.Launch) {
			a := abi.Attribute{ID: abi.AttributePriority}
			a.PutUint32(0, 0xffffffff-8)
			l.Attributes, l.Priority = []abi.Attribute{a}, 5
		},
	} {
		if got := s.launch(1, change); got.Priority != want {
			t.Errorf("priority %d, want %d", got.Priority, want)
		}
	}
	ch := must[*driver.Channel](t)(s.gpu.NewChannel(t.Context(), driver.ChannelOptions{Priority: -2}))
	p := must[*driver.Pending](t)(ch.Launch(t.Context(), s.work, driver.Dim{}, driver.Dim{}, 0, driver.Ptr(0)))
	check(t, p.Wait(t.Context()))
	if got := s.host.GPU(0).Calls(); got[0].Priority != -2 {
		t.Errorf("a channel's priority: %+v", got)
	}
}

// TestOriginalsAndWhy covers what leaves kernels as they were written.
func TestOriginalsAndWhy(t *testing.T) {
	on := driver.ContextOptions{Preempt: &driver.PreemptOptions{}}
	for name, c := range map[string]struct {
		host   drivertest.Options
		opts   driver.ContextOptions
		reason string
	}{
		"not asked for":          {opts: driver.ContextOptions{}, reason: "off"},
		"turned off":             {opts: driver.ContextOptions{Preempt: &driver.PreemptOptions{Off: true}}, reason: "off"},
		"a host of yesterday":    {host: drivertest.Options{Features: abi.AllFeatures &^ abi.FeaturePreempt}, opts: on, reason: "host"},
		"a host that refuses it": {host: drivertest.Options{RefuseForms: true}, opts: on, reason: "host-refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, c.host, c.opts)
			if p := s.work.Preemption(); p.Forms != 0 || p.Reason != c.reason {
				t.Errorf("%+v", p)
			}
			if text := s.host.GPU(0).Image(); text != workPTX {
				t.Errorf("loaded:\n%s", text)
			}
			if got := s.launch(50, nil); got.Preempt.Form != 0 {
				t.Errorf("launched %+v", got)
			}
			l := driver.Launch{Function: s.work, Preempt: &driver.Preempt{Form: abi.PreemptSingle}, Params: make([]byte, 8)}
			if err := s.gpu.Own().Enqueue(t.Context(), new(driver.Pending), &l); err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("a form that it does not have: %v", err)
			}
		})
	}
	t.Run("kernels of the module", func(t *testing.T) {
		s := newScene(t, drivertest.Options{}, on)
		f := must[*driver.Function](t)(s.mod.Function(t.Context(), "cluster"))
		if p := f.Preemption(); p.Forms != 0 || p.Reason != "cluster" || p.Kernel != "cluster" {
			t.Errorf("%+v", p)
		}
	})
	for name, c := range map[string]struct{ text, reason string }{
		"machine code":      {"\x7fELF", "not-ptx"},
		"what is no PTX":    {".this is not", "does-not-parse"},
		"a very long one":   {".version 7.0\n.target sm_80\n" + strings.Repeat("// and so on\n", 1<<19), "too-long"},
		"what host refuses": {"what?", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, drivertest.Options{SharedBytes: 64 << 20}, on)
			text := c.text
			if text[0] == 0x7f {
				text = "." // the fake has no machine code
			}
			mod, err := s.gpu.LoadModule(t.Context(), []byte(c.text))
			if c.text[0] != '.' {
				if failed, ok := errors.AsType[*driver.Error](err); !ok || failed.Status != abi.StatusInvalidPTX || failed.Detail == "" {
					t.Errorf("%v", err)
				}
				return
			}
			check(t, err)
			f := must[*driver.Function](t)(mod.Function(t.Context(), "work"))
			if p := f.Preemption(); p.Reason != c.reason || p.Forms != 0 {
				t.Errorf("%+v", p)
			}
			_ = text
		})
	}
}

// TestCooperativeStaysOriginal checks that launches whose blocks must all be resident use the
// original.
func TestCooperativeStaysOriginal(t *testing.T) {
	s := newScene(t, drivertest.Options{}, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
	a := abi.Attribute{ID: abi.AttributeCooperative}
	a.PutUint32(0, 1)
	if got := s.launch(100, func(l *driver.Launch) { l.Attributes = []abi.Attribute{a} }); got.Preempt.Form != 0 {
		t.Errorf("launched %+v", got)
	}
}

// TestFormsTooLargeStayOriginal never launches a form of which an SM holds no block, whatever the
// tuner's measurements.
func TestFormsTooLargeStayOriginal(t *testing.T) {
	for _, large := range []abi.PreemptForm{abi.PreemptPersistent, abi.PreemptCoarse | abi.PreemptPersistent, every} {
		t.Run(large.String(), func(t *testing.T) {
			k := workKernels(long)
			w := k["work"]
			w.TooLarge = large
			k["work"] = w
			for _, asked := range []abi.PreemptForm{every, abi.PreemptPersistent} {
				s := newScene(t, drivertest.Options{Kernels: k}, driver.ContextOptions{Preempt: &driver.PreemptOptions{Forms: asked}})
				s.launch(200, nil) // each launch is waited for and must succeed
				if p := s.work.Preemption(); (p.Preemptible > 0) != (asked&^large != 0) || p.Launches != 200 {
					t.Errorf("%v of the forms %v: %+v", large, asked, p)
				}
			}
		})
	}
}

// TestGridsThatFitStayOriginal checks that a grid which the GPU holds at once, but of whose forms
// it holds fewer blocks, uses the original: its blocks may need one another. A larger grid of the
// same class of shapes uses a form.
func TestGridsThatFitStayOriginal(t *testing.T) {
	k := workKernels(func(drivertest.Call) time.Duration { return 10 * time.Millisecond })
	w := k["work"]
	w.FormsPerSM = drivertest.PerSM - 1
	k["work"] = w
	const slots = drivertest.SMs * drivertest.PerSM
	grid := func(n uint32) func(*driver.Launch) { return func(l *driver.Launch) { l.Grid = driver.Dim{X: n} } }
	for _, forms := range []abi.PreemptForm{early, every} {
		for _, larger := range []bool{true, false} { // the tuner knows larger grids of the class, or only this size
			s := newScene(t, drivertest.Options{Kernels: k}, driver.ContextOptions{Preempt: &driver.PreemptOptions{Forms: forms}})
			if larger {
				if got := s.launch(100, grid(2*slots-1)); got.Preempt.Form == 0 {
					t.Fatalf("%v: a grid that does not fit: launched %+v", forms, got)
				}
			}
			for range 100 {
				if got := s.launch(1, grid(slots)); got.Preempt.Form != 0 {
					t.Fatalf("%v: a grid of %d blocks, of which the GPU holds %d at once: launched %+v", forms, slots, slots, got)
				}
			}
			if p := s.work.Preemption(); len(p.Classes) != 1 {
				t.Errorf("not of one class: %+v", p)
			}
		}
	}
}

// TestLookBackInOneDimension checks that grids of several dimensions use the original if blocks
// wait for earlier ones.
func TestLookBackInOneDimension(t *testing.T) {
	const text = `.version 7.0
.target sm_80
.address_size 64
.visible .entry work(.param .u64 out)
{
	.reg .pred %p<3>; .reg .b32 %r<3>; .reg .b64 %rd<4>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %ctaid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra FIRST;
AGAIN:
	ld.volatile.global.u32 %r2, [%rd3+-4];
	setp.eq.u32 %p2, %r2, 0;
	@%p2 bra AGAIN;
FIRST:
	st.volatile.global.u32 [%rd3], 1;
	ret;
}
`
	k := workKernels(func(drivertest.Call) time.Duration { return 10 * time.Millisecond })
	s := newScene(t, drivertest.Options{Kernels: k}, driver.ContextOptions{Preempt: &driver.PreemptOptions{Forms: every}})
	mod := must[*driver.Module](t)(s.gpu.LoadModule(t.Context(), []byte(text)))
	s.work = must[*driver.Function](t)(mod.Function(t.Context(), "work"))
	if p := s.work.Preemption(); p.Forms != abi.PreemptPersistent {
		t.Fatalf("%+v", p)
	}
	grid := func(x, y uint32) func(*driver.Launch) {
		return func(l *driver.Launch) { l.Grid = driver.Dim{X: x, Y: y} }
	}
	if got := s.launch(100, grid(blocks, 1)); got.Preempt.Form != abi.PreemptPersistent {
		t.Errorf("one dimension: launched %+v", got)
	}
	if got := s.launch(100, grid(blocks/2, 2)); got.Preempt.Form != 0 {
		t.Errorf("two dimensions: launched %+v", got)
	}
	l := driver.Launch{Function: s.work, Grid: driver.Dim{X: blocks, Y: 2}, Preempt: &driver.Preempt{Form: abi.PreemptPersistent}, Params: make([]byte, 8)}
	if err := s.gpu.Own().Enqueue(t.Context(), new(driver.Pending), &l); err == nil {
		t.Error("forced in two dimensions")
	}
}

// TestEvictedAreNotMeasured checks that launches which were evicted don't count as measurements.
func TestEvictedAreNotMeasured(t *testing.T) {
	k := workKernels(long)
	w := k["work"]
	w.Evicted = func(c drivertest.Call) uint64 { return uint64(c.Preempt.Form) & uint64(abi.PreemptCoarse) }
	k["work"] = w
	s := newScene(t, drivertest.Options{Kernels: k}, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
	if got := s.launch(200, nil); got.Preempt.Form != 0 { // the single form costs too much, the coarse one was never measured
		t.Errorf("launched %+v", got)
	}
	if p := s.work.Preemption(); p.Evictions == 0 || p.Classes[0].Why != tune.WhyTooCostly {
		t.Errorf("%+v", p)
	}
}

// memory is a cache that can fail.
type memory struct {
	*cache.Cache
	fail error
}

func (m *memory) Recall(ctx context.Context, keys []cache.Key) ([]cache.Entry, error) {
	all, err := m.Cache.Recall(ctx, keys)
	return all, errors.Join(err, m.fail)
}

func (m *memory) Learn(ctx context.Context, entries []cache.Entry) error {
	return errors.Join(m.Cache.Learn(ctx, entries), m.fail)
}

// TestRemembered has a second program start with what the first one learned.
func TestRemembered(t *testing.T) {
	m := cache.New()
	o := driver.ContextOptions{Preempt: &driver.PreemptOptions{Memory: m}}
	s := newScene(t, drivertest.Options{}, o)
	last := s.launch(100, nil)
	must[*driver.Function](t)(s.mod.Function(t.Context(), "cluster"))
	check(t, s.gpu.Close())
	got := map[string]cache.Entry{}
	for _, e := range m.All() {
		got[e.Name] = e
	}
	if e := got["work"]; e.Forms != every || len(e.Record.Classes) != 1 || !strings.HasPrefix(e.GPU, drivertest.Name) {
		t.Errorf("kept %+v", e)
	}
	if e := got["cluster"]; e.Forms != 0 || e.Reason != "cluster" || e.Key == got["work"].Key {
		t.Errorf("kept %+v", e)
	}
	second := newScene(t, drivertest.Options{}, o)
	if got := second.launch(1, nil); got != last {
		t.Errorf("the second program's first launch: %+v, want %+v", got, last)
	}
}

// TestLoadedAgain has the same program load the module again and start with what it learned.
func TestLoadedAgain(t *testing.T) {
	s := newScene(t, drivertest.Options{}, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
	last := s.launch(100, nil)
	o := driver.ContextOptions{Preempt: &driver.PreemptOptions{}}
	dev := s.gpu.Device()
	check(t, s.gpu.Close())
	s.gpu = must[*driver.Context](t)(dev.NewContext(t.Context(), o))
	s.mod = must[*driver.Module](t)(s.gpu.LoadModule(t.Context(), []byte(workPTX)))
	s.work = must[*driver.Function](t)(s.mod.Function(t.Context(), "work"))
	if got := s.launch(1, nil); got != last {
		t.Errorf("the first launch: %+v, want %+v", got, last)
	}
}

// TestShortOnesAreNotMade makes no forms of kernels that are known to be short, until they no
// longer are.
func TestShortOnesAreNotMade(t *testing.T) {
	took := 100 * time.Microsecond
	kernels := workKernels(func(drivertest.Call) time.Duration { return took })
	path := filepath.Join(t.TempDir(), "kernels")
	options := func() driver.ContextOptions {
		f := must[*cache.File](t)(cache.Open(path, slog.New(slog.DiscardHandler)))
		return driver.ContextOptions{Preempt: &driver.PreemptOptions{Memory: f}}
	}
	for i, want := range []struct {
		reason string
		made   bool
	}{{"", true}, {"short", false}, {"short", false}, {"", true}} {
		if i == 2 {
			took = 20 * time.Millisecond
		}
		s := newScene(t, drivertest.Options{Kernels: kernels}, options())
		s.launch(20, nil)
		made := strings.Contains(s.host.GPU(0).Image(), "work__vgpud_")
		if p := s.work.Preemption(); p.Reason != want.reason || made != want.made {
			t.Errorf("program %d: made %v, %+v", i, made, p)
		}
		check(t, s.gpu.Close())
	}
}

// TestMemoryThatFails checks that a failing Memory changes nothing for the program.
func TestMemoryThatFails(t *testing.T) {
	m := &memory{Cache: cache.New(), fail: errors.New("disk full")}
	s := newScene(t, drivertest.Options{}, driver.ContextOptions{Preempt: &driver.PreemptOptions{Memory: m}})
	if got := s.launch(100, nil); got.Preempt.Form != abi.PreemptCoarse {
		t.Errorf("launched %+v", got)
	}
}

// TestLinesStay checks that the loaded text begins with the module as it was written, so that the
// host's messages name the right lines.
func TestLinesStay(t *testing.T) {
	s := newScene(t, drivertest.Options{}, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
	rest, ok := strings.CutPrefix(s.host.GPU(0).Image(), workPTX)
	if !ok {
		t.Fatalf("loaded:\n%s", s.host.GPU(0).Image())
	}
	var entries []string
	for line := range strings.Lines(rest) {
		if _, name, ok := strings.Cut(line, ".entry "); ok {
			entries = append(entries, name[:strings.IndexAny(name, "( \n")])
		}
	}
	if diff := cmp.Diff([]string{"work__vgpud_single", "work__vgpud_coarse", "work__vgpud_persist"}, entries); diff != "" {
		t.Errorf("entries behind it (-want +got):\n%s", diff)
	}
}

func TestPreemptibleEnqueueAllocatesNothing(t *testing.T) {
	s := newScene(t, drivertest.Options{PollWindow: time.Millisecond}, driver.ContextOptions{Priority: 1, Preempt: &driver.PreemptOptions{}})
	s.launch(100, nil)
	ctx := t.Context()
	l := driver.Launch{Function: s.work, Grid: driver.Dim{X: blocks}, Block: driver.Dim{X: 64}, Params: make([]byte, 8)}
	var p driver.Pending
	if err := s.gpu.Own().Enqueue(ctx, &p, &l); err != nil {
		t.Fatal(err)
	}
	check(t, p.Wait(ctx))
	if p.Form() != abi.PreemptCoarse {
		t.Fatalf("launched as %v", p.Form())
	}
	n := testing.AllocsPerRun(200, func() {
		check(t, s.gpu.Own().Enqueue(ctx, &p, &l))
		for !p.Done() {
			check(t, p.Wait(ctx))
		}
	})
	if n >= 1 { // waiting may make a timer or a channel, now and then
		t.Errorf("a launch allocates %v times", n)
	}
}

// BenchmarkEnqueuePreemptible is [BenchmarkEnqueue] for a kernel whose form is chosen for each
// launch, with its attribute and a priority.
func BenchmarkEnqueuePreemptible(b *testing.B) {
	s := newScene(b, drivertest.Options{PollWindow: time.Millisecond}, driver.ContextOptions{Priority: 1, Preempt: &driver.PreemptOptions{}})
	s.launch(100, nil)
	ctx := b.Context()
	ch := must[*driver.Channel](b)(s.gpu.NewChannel(ctx, driver.ChannelOptions{}))
	l := driver.Launch{Function: s.work, Grid: driver.Dim{X: blocks}, Block: driver.Dim{X: 64}, Params: make([]byte, 8)}
	var p [256]driver.Pending
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := ch.Enqueue(ctx, &p[i%len(p)], &l); err != nil {
			b.Fatal(err)
		}
		if i%len(p) == len(p)-1 {
			if err := p[i%len(p)].Wait(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	check(b, ch.Sync(ctx))
}
