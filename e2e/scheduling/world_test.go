package scheduling

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/mediator/daemon"
	"vgpud/mediator/executor"
	"vgpud/mediator/ipc"
	"vgpud/mediator/scheduler"
	"vgpud/mediator/vgpu/abi"
)

// world is a GPU in simulated time, with the executors of its guests' contexts and the scheduler
// that shares it as they are in the product.
type world struct {
	t      testing.TB
	clock  clock.Sim
	m      *machine.Machine
	shown  machine.Shown
	sched  *scheduler.Scheduler
	watch  accounting.Config
	guests []*guest
	limit  time.Duration
	actors []*actor
	offAt  map[*guest]time.Duration
	marks  []mark
	used   [2]time.Duration // by the first guest's contexts that are closed, and the others'
}

// mark is what the two guests had used at an instant.
type mark struct{ at, mine, others time.Duration }

// An actor is a context of a guest, with what its program does.
type actor struct {
	w       *world
	g       *guest
	slot    int
	x       *executor.Executor
	ctx     *worldContext
	shared  []byte
	subs    []*abi.SubmissionWriter
	coms    []*abi.CompletionReader
	waiting []int // commands that are not answered, by channel
	fn      uint64
	done    int
	failed  bool
	program func(a *actor)
}

const (
	worldEntries = abi.MinRingEntries
	worldStage   = 256 << 10
)

func newWorld(t testing.TB, mode machine.Mode, limit time.Duration) *world {
	w := &world{t: t, limit: limit, watch: accounting.Config{}.WithDefaults(), offAt: make(map[*guest]time.Duration)}
	w.m = machine.New(machine.Config{Mode: mode}, 0, &w.shown)
	var err error
	w.sched, err = scheduler.New(scheduler.Options{
		Name: "gpu0", Clock: &w.clock, Log: slog.New(slog.DiscardHandler), Policy: "dfq", GPU: scheduler.GPU{Watch: w.watch},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Nanosecond)
	return w
}

// guest is a guest with its control page.
type guest struct {
	*scheduler.Guest
	page *ipc.ControlPage
}

// add adds a guest of a weight.
func (w *world) add(weight float64) *guest {
	page, err := ipc.NewControlPage()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := page.Close(); err != nil {
			w.t.Error(err)
		}
	})
	g := &guest{scheduler.NewGuest(scheduler.GuestOptions{Name: "g", Terms: ipc.Terms{Weight: weight}, TimeLimit: w.limit, Page: page}), page}
	w.sched.Add(g.Guest)
	w.guests = append(w.guests, g)
	return g
}

// join adds a context of g's with so many channels, and a program.
func (w *world) join(g *guest, slot, channels int, program func(a *actor)) *actor {
	a := &actor{w: w, g: g, slot: slot, program: program, waiting: make([]int, channels)}
	w.actors = append(w.actors, a)
	a.begin()
	w.t.Cleanup(func() { a.end() })
	return a
}

// begin starts the context's executor and opens its channels.
func (a *actor) begin() {
	w := a.w
	group, err := w.m.NewGroup()
	if err != nil {
		w.t.Fatal(err)
	}
	a.ctx = &worldContext{w: w, a: a, group: group}
	a.shared = make([]byte, worldStage+64<<10)
	slot := a.g.page.Context(a.slot)
	slot.Reset(1)
	n := len(a.waiting)
	header := abi.HeaderBytes(n)
	a.x = executor.New(executor.Options{
		Device: worldDevice{w: w}, Context: a.ctx, Shared: a.shared, Windows: worldStage, Page: a.g.page, Slot: a.slot,
		Clock: &w.clock, KernelTimeLimit: w.limit, ChannelFailed: func(f ipc.ChannelFailure) { w.t.Error("a channel failed:", f) },
	})
	slot.SetReady(group.ID())
	a.g.page.AddChange()
	a.subs, a.coms, a.done, a.failed = nil, nil, 0, false
	for i := range n {
		a.waiting[i] = 0
		ring := abi.RingBytes(worldEntries)
		sub := uint64(header + 2*i*ring)
		com := sub + uint64(ring)
		page := a.shared[abi.ChannelPage(i):][:abi.PageSize]
		abi.ResetChannelPage(page)
		a.x.Open(ipc.Channel{
			Index: i, Words: uint64(abi.ChannelPage(i)), Vector: -1,
			SubmissionOffset: sub, SubmissionCount: worldEntries, CompletionOffset: com, CompletionCount: worldEntries,
		}, func(err error) {
			if err != nil {
				w.t.Error(err)
			}
		})
		s, err := abi.NewSubmissionWriter(page, a.shared[sub:com])
		if err != nil {
			w.t.Fatal(err)
		}
		c, err := abi.NewCompletionReader(page, a.shared[com:][:ring])
		if err != nil {
			w.t.Fatal(err)
		}
		a.subs, a.coms = append(a.subs, s), append(a.coms, c)
	}
	a.x.Step(false)
	copy(a.shared[worldStage:], "module")
	a.send(0, abi.OpModuleLoad, abi.Module{Image: abi.Window{Offset: worldStage, Size: 16}})
	a.send(0, abi.OpFunction, abi.Lookup{Module: a.answer(0).Value[0], NameBytes: 1}, 'k')
	a.fn = a.answer(0).Value[0]
}

// end closes the context, as the end of its process does.
func (a *actor) end() {
	if a.x == nil {
		return
	}
	if err := a.x.Close(); err != nil {
		a.w.t.Error(err)
	}
	a.w.used[min(int(a.g.ID())-1, 1)] += a.ctx.group.Usage().Busy
	a.ctx.group.Close()
	a.g.page.Context(a.slot).Free()
	a.g.page.AddChange()
	a.x = nil
}

// send puts a command into a channel's ring.
func (a *actor) send(ch int, op abi.Opcode, p interface{ Encode(*abi.Entry) }, more ...byte) {
	h := abi.Header{Op: op, More: uint8(abi.MoreFor(len(more)))}
	if !a.subs[ch].Reserve(1 + int(h.More)) {
		a.w.t.Fatal("no room in a ring")
	}
	e := a.subs[ch].Next()
	p.Encode(e)
	h.Encode(e)
	for len(more) > 0 {
		more = more[copy(a.subs[ch].Next()[:], more):]
	}
	a.subs[ch].Publish()
	a.waiting[ch]++
}

// answer is the next completion of what needs no GPU time.
func (a *actor) answer(ch int) (c abi.Completion) {
	for range 10 {
		if buf := make([]abi.Completion, 1); a.fetch(ch, buf) {
			return buf[0]
		}
		a.x.Step(false)
	}
	a.w.t.Fatal("no answer")
	return c
}

func (a *actor) fetch(ch int, buf []abi.Completion) bool {
	n, _, err := a.coms[ch].Fetch(buf)
	if err != nil {
		a.w.t.Fatal(err)
	}
	a.waiting[ch] -= n
	return n > 0
}

// launch launches a kernel that runs for d; 0: for ever.
func (a *actor) launch(ch int, d time.Duration) {
	a.send(ch, abi.OpLaunch, abi.Launch{Function: a.fn, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8},
		binary.LittleEndian.AppendUint64(nil, uint64(d))...)
}

// keep has channel ch always have n kernels of length d.
func (a *actor) keep(ch, n int, d time.Duration) {
	for a.waiting[ch] < n {
		a.launch(ch, d)
	}
}

// act has the context's program and its executor do what they can now.
func (a *actor) act() (did bool) {
	var buf [1]abi.Completion
	for ch := range a.coms {
		for a.fetch(ch, buf[:]) {
			did = true
			a.done++
			a.failed = a.failed || buf[0].Status != abi.StatusOK
		}
	}
	if a.failed {
		a.end()
		a.begin()
	}
	a.program(a)
	now := a.w.clock.Now()
	return a.x.Step(a.g.page.SuspendWord(now) == ipc.Suspend) || did
}

// settle lets everybody do what can be done at this instant.
func (w *world) settle() {
	for rounds := 0; ; rounds++ {
		did := false
		for _, a := range w.actors {
			did = a.act() || did
		}
		if !did {
			return
		}
		if rounds > 10_000 {
			w.t.Fatal("nothing comes to rest")
		}
	}
}

// AdvanceTo implements [accounting.Simulation].
func (w *world) AdvanceTo(t time.Duration) {
	for {
		evs := w.m.Step(min(t, w.nextLook()))
		w.clock.Advance(w.m.Now() + time.Nanosecond - w.clock.Now())
		for _, e := range evs {
			switch e.Kind {
			case machine.Finished:
				e.Launch.Tag.(*worldLaunch).end(nil)
			case machine.Expired:
				e.Launch.Tag.(*worldLaunch).ch.ctx.fail(gpu.ErrTimeLimit)
			}
		}
		w.deepen()
		w.settle()
		w.mark()
		if evs == nil && w.m.Now() >= t {
			return
		}
	}
}

// SteadyUntil implements [accounting.Simulation].
func (w *world) SteadyUntil() time.Duration { return min(w.m.Next(), w.nextLook()) }

// Now implements [accounting.Simulation].
func (w *world) Now() time.Duration { return w.m.Now() }

// worldLook is how often executors look at what has changed without their being told.
const worldLook = 5 * time.Millisecond

func (w *world) nextLook() time.Duration { return (w.m.Now()/worldLook + 1) * worldLook }

// Sample implements [accounting.Source].
func (w *world) Sample() (accounting.Status, error) {
	st := accounting.StatusOf(w.shown.State)
	st.Clock, st.Entry = w.m.Now(), accounting.EntryIdle
	if w.shown.OnChan && int(w.shown.Channel) < len(w.shown.Entries) && w.shown.Entries[w.shown.Channel].Working() {
		st.Entry = accounting.EntryPending
	}
	return st, nil
}

// deepen takes the contexts of guests that are suspended off a GPU that can do that.
func (w *world) deepen() {
	if w.m.Config().Mode != machine.Slices {
		return
	}
	for _, g := range w.guests {
		held := g.Suspended()
		if at, ok := w.offAt[g]; held && !ok {
			w.offAt[g] = w.m.Now() + daemon.DefaultDisableAfter
		} else if !held && ok {
			delete(w.offAt, g)
		} else if held && w.m.Now() < at {
			continue
		}
		at, ok := w.offAt[g]
		for _, a := range w.actors {
			if off := ok && w.m.Now() >= at; a.g == g && a.ctx.off != off {
				a.ctx.off = off
				g.page.SetDisabled(a.slot, off)
				a.ctx.group.SetEnabled(!off)
			}
		}
	}
}

// run lets the world go on until an instant, watched and governed as in the product.
func (w *world) run(until time.Duration) {
	w.settle()
	sampler, err := accounting.NewSimulatedSampler(w, governed{w.sched, w}, w.watch)
	if err == nil {
		err = sampler.RunUntil(until)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// governed has the world do what a verdict makes possible at once.
type governed struct {
	*scheduler.Scheduler
	w *world
}

// PollEnded implements [accounting.Handler].
func (g governed) PollEnded(p *accounting.Phase) accounting.Plan {
	plan := g.Scheduler.PollEnded(p)
	g.w.deepen()
	g.w.settle()
	return plan
}

// mark notes how far the guests are.
func (w *world) mark() {
	m := mark{at: w.m.Now(), mine: w.used[0], others: w.used[1]}
	for _, a := range w.actors {
		if busy := a.ctx.group.Usage().Busy; a.g == w.guests[0] {
			m.mine += busy
		} else {
			m.others += busy
		}
	}
	w.marks = append(w.marks, m)
}

// least is the least part that the first guest had of any time of that length, and longest the
// longest time for which the others had the GPU and it had not.
func (w *world) least(window time.Duration) (part float64, longest time.Duration) {
	part = 1
	marks, end, waits := w.marks, 0, 0
	for i, from := range marks {
		if from.mine != marks[waits].mine {
			waits = i
		}
		longest = max(longest, from.others-marks[waits].others)
		for end < len(marks) && marks[end].at < from.at+window {
			end++
		}
		if end < len(marks) {
			// Time beyond the window counts for it: it is less than a millisecond.
			part = min(part, float64(marks[end].mine-from.mine)/float64(window))
		}
	}
	return part, longest
}

// worldDevice is the GPU as executors see it.
type worldDevice struct {
	gpu.Device
	w *world
}

func (d worldDevice) Now() (time.Duration, error) { return d.w.m.Now(), nil }

func (d worldDevice) Properties() gpu.Properties {
	dim := gpu.Dim3{X: 1024, Y: 1024, Z: 64}
	return gpu.Properties{Name: "world", SMs: 8, ThreadsPerBlock: 1024, MaxGrid: dim, MaxBlockDim: dim}
}

type worldContext struct {
	gpu.Context
	w        *world
	a        *actor
	group    *machine.Group
	channels []*worldChannel
	fault    error
	off      bool
}

func (c *worldContext) Group() gpu.GroupID                      { return gpu.GroupID(c.group.ID()) }
func (c *worldContext) LoadModule([]byte) (gpu.Module, error)   { return worldModule{}, nil }
func (c *worldContext) Fault() error                            { return c.fault }
func (c *worldContext) Memory() (free, total uint64, err error) { return 1 << 30, 1 << 30, nil }

func (c *worldContext) Close() error {
	c.fail(gpu.ErrPoisoned)
	return nil
}

func (c *worldContext) NewChannel() (gpu.Channel, error) {
	ch, err := c.group.NewChannel()
	if err != nil {
		return nil, err
	}
	wc := &worldChannel{ctx: c, ch: ch}
	c.channels = append(c.channels, wc)
	return wc, nil
}

// fail ends what the context has on the GPU.
func (c *worldContext) fail(err error) {
	if c.fault != nil {
		return
	}
	c.fault = err
	for _, ch := range c.channels {
		for len(ch.queue) > 0 {
			l := ch.queue[0]
			c.w.m.Kill(&l.Launch)
			l.end(err)
		}
	}
}

type worldModule struct{ gpu.Module }

func (worldModule) Function(string) (gpu.Function, error) { return worldFunction{}, nil }

type worldFunction struct{ gpu.Function }

func (worldFunction) Occupancy(int, uint64) (int, error) { return 8, nil }
func (worldFunction) Attributes() gpu.FunctionAttributes {
	return gpu.FunctionAttributes{Name: "k", Params: []gpu.Param{{Size: 8}}, ParamBytes: 8}
}

type worldChannel struct {
	gpu.Channel
	ctx   *worldContext
	ch    *machine.Channel
	queue []*worldLaunch
	sent  gpu.Fence
	done  gpu.Fence
	ends  [gpu.OutcomesKept]gpu.Outcome
}

type worldLaunch struct {
	machine.Launch
	ch *worldChannel
}

func (c *worldChannel) Launch(l *gpu.Launch) (gpu.Fence, error) {
	if c.ctx.fault != nil {
		return 0, c.ctx.fault
	}
	d := time.Duration(binary.LittleEndian.Uint64(l.Params))
	wl := &worldLaunch{ch: c}
	wl.Work = machine.Work{Duration: d, Open: d == 0, Limit: c.ctx.w.limit}
	wl.Tag = wl
	if err := c.ch.Submit(&wl.Launch); err != nil {
		return 0, fmt.Errorf("launch: %w", err)
	}
	c.queue = append(c.queue, wl)
	c.sent++
	return c.sent, nil
}

// end takes note of the end of the channel's first launch.
func (l *worldLaunch) end(err error) {
	c := l.ch
	c.queue = c.queue[1:]
	c.done++
	now := c.ctx.w.m.Now()
	start := l.Start()
	if start == 0 {
		start = now
	}
	c.ends[c.done%gpu.OutcomesKept] = gpu.Outcome{Start: start, End: now, Err: err}
}

func (c *worldChannel) Done() gpu.Fence                       { return c.done }
func (c *worldChannel) Outcome(f gpu.Fence) gpu.Outcome       { return c.ends[f%gpu.OutcomesKept] }
func (c *worldChannel) Wait(context.Context, gpu.Fence) error { return nil }

func (c *worldChannel) Close() error {
	c.ch.Close()
	return nil
}
