package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/internal/memfd"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// recordedGPU is a GPU whose status can't be read, and that records its own context switches.
type recordedGPU struct{ *accountingtest.Record }

func (recordedGPU) Properties() gpu.Properties                { return gpu.Properties{Name: "recorded", SMs: 4} }
func (recordedGPU) Close() error                              { return nil }
func (g recordedGPU) Events() (accounting.EventSource, error) { return g.Record, nil }

// lockedGPU has registers too, which the kernel may not let anybody read.
type lockedGPU struct {
	recordedGPU
	locked bool
}

func (g *lockedGPU) Source() (accounting.Source, error) {
	if g.locked {
		return nil, errors.New("the kernel is locked down")
	}
	return idleSource{}, nil
}

// recording is a loop whose GPU records context switches, in simulated time, and guests whose
// executors are the test's.
type recording struct {
	t      *testing.T
	clock  clock.Sim
	loop   *Loop
	gpu    *accountingtest.Recorded
	record *accountingtest.Record
	guests []*Guest
	done   []uint64 // kernels, by guest
	put    []int    // on the GPU, by guest
}

// newRecording returns a loop that runs, under a policy, with the GPU that open returns.
func newRecording(t *testing.T, open func(*accountingtest.Record) gpu.Monitor, policy string, by Watching) *recording {
	h := &recording{t: t, gpu: &accountingtest.Recorded{Save: 64 * time.Microsecond, Preempted: 85 * time.Microsecond, Load: 80 * time.Microsecond, ResumeDelay: 47 * time.Microsecond}}
	h.gpu.AdvanceTo(ms)
	h.clock.Advance(ms)
	h.record = &accountingtest.Record{GPU: h.gpu, Clock: &h.clock}
	var err error
	h.loop, err = OpenLoop(t.Context(), Options{Name: "gpu0", Clock: &h.clock, Log: slog.New(slog.DiscardHandler), Policy: policy}, LoopOptions{
		Open: func(context.Context) (gpu.Monitor, error) { return open(h.record), nil }, Watching: by,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.loop.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := h.loop.Close(); err != nil {
			t.Error(err)
		}
		if h.loop.opened.source.events != nil && !h.record.Closed.Load() {
			t.Error("the record was not closed")
		}
		for _, g := range h.guests {
			if err := g.o.Page.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

// join adds a guest with one context.
func (h *recording) join(name string, weight float64, page *ipc.ControlPage, c *accountingtest.RecordedContext) *Guest {
	return h.joinProcess(name, 0, weight, page, c)
}

// joinProcess is join for a guest whose process is known.
func (h *recording) joinProcess(name string, pid int, weight float64, page *ipc.ControlPage, c *accountingtest.RecordedContext) *Guest {
	h.t.Helper()
	page.Context(0).Reset(c.PID)
	page.Context(0).SetReady(uint16(c.Group))
	g := NewGuest(GuestOptions{Name: name, PID: pid, Terms: ipc.Terms{Weight: weight}, Page: page})
	h.loop.Add(g)
	h.gpu.Add(c)
	h.guests = append(h.guests, g)
	h.record.Contexts = append(h.record.Contexts, c)
	h.done, h.put = append(h.done, 0), append(h.put, 0)
	return g
}

// watcher returns what watches the GPU now.
func (h *recording) watcher() watcher {
	h.loop.watching.Lock()
	defer h.loop.watching.Unlock()
	return h.loop.opened.watcher
}

// pass lets time go on in steps, after each of which the executors obey their suspend words and
// record their work.
func (h *recording) pass(d time.Duration) {
	for end := h.clock.Now() + d; h.clock.Now() < end; {
		h.clock.AwaitWaiters(1)
		const step = ms / 2
		h.gpu.AdvanceTo(h.clock.Now() + step)
		for i, c := range h.record.Contexts {
			h.executor(h.guests[i].o.Page, i, c)
		}
		h.clock.Advance(step)
	}
	h.clock.AwaitWaiters(1)
}

// executor does what guest i's executor does at the end of a step.
func (h *recording) executor(page *ipc.ControlPage, i int, c *accountingtest.RecordedContext) {
	slot, work := page.Context(0), page.WorkLog(0)
	page.Beat(h.clock.Now())
	h.gpu.Hold(c, page.SuspendWord(h.clock.Now()) == ipc.Suspend)
	w := c.Work()
	for _, s := range w.Intervals {
		slot.AddFinished(s.End-s.Start, 0, false)
		h.put[i]--
		if work.Wanted() {
			work.Add(s.Start, s.End)
		}
	}
	for ; h.put[i] < c.Outstanding(); h.put[i]++ {
		slot.AddFetched()
	}
	work.SetSince(w.Since)
	slot.SetBacklog(c.Backlogged())
}

// oldPage replaces a page by one of the version before records of work.
func oldPage(t *testing.T, page *ipc.ControlPage) *ipc.ControlPage {
	t.Helper()
	if err := page.Close(); err != nil {
		t.Fatal(err)
	}
	// Records of work have a header of 64 bytes, and for each context two lines and 512 spans. Behind
	// them event kernels have a header and two lines each.
	const work = 64 + ipc.MaxContexts*(2*64+512*16) + 64 + abi.MaxEventKernels*2*64
	fd, err := unix.MemfdCreate("old", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "old")
	if err := f.Truncate(ipc.ControlPageBytes - work); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0x76, 0x76, 0x70, 0x67, 2, 0, 0, 0}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Fatal(err)
	}
	if page, err = ipc.OpenControlPage(f); err != nil {
		t.Fatal(err)
	}
	if page.HasWorkLog() || !page.HasLaunchSlots() {
		t.Fatal("the page is not of that version")
	}
	return page
}

func newPage(t *testing.T) *ipc.ControlPage {
	t.Helper()
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// TestSharesByEvents: dfq shares a GPU by weight if all that is known of it is its record of
// context switches and the executors' records of work, and each guest is billed for what it used.
func TestSharesByEvents(t *testing.T) {
	h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} }, "dfq", Watching{})
	r := rand.New(rand.NewPCG(5, 6))
	lengths := []time.Duration{300 * time.Microsecond, 2 * ms, 700 * time.Microsecond}
	weights := []float64{1, 2, 4}
	var contexts []*accountingtest.RecordedContext
	for i := range weights {
		c := &accountingtest.RecordedContext{PID: 100 + i, Group: accounting.GroupID(3 + i), Depth: 2, Kernel: accountingtest.Random(r, lengths[i], 1)}
		h.join(string(rune('a'+i)), weights[i], newPage(t), c)
		contexts = append(contexts, c)
	}
	h.pass(time.Second)
	var before, billed [3]time.Duration // the bill is of the last round, here and at the end
	for i, c := range contexts {
		before[i], billed[i] = c.Busy(), h.guests[i].o.Page.Bill().Used
	}
	h.pass(5 * time.Second)
	var total time.Duration
	for i, c := range contexts {
		total += c.Busy() - before[i]
	}
	for i, c := range contexts {
		share := float64(c.Busy()-before[i]) / float64(total)
		if want := weights[i] / 7; share < want-0.02 || share > want+0.02 {
			t.Errorf("guest %d has %.1f %% of what all used, want %.1f %%", i, 100*share, 100*want)
		}
		used, busy := h.guests[i].o.Page.Bill().Used-billed[i], c.Busy()-before[i]
		// How much longer launches take that were preempted is known on average:
		// accounting.RecordMeterConfig.
		if off := float64(used-busy) / float64(busy); off > 0.003 || off < -0.003 {
			t.Errorf("guest %d is billed %v of %v, %+.2f %%", i, used, busy, 100*off)
		}
	}
	g := h.loop.WatcherStatus()
	if g.Source != SourceEvents || !strings.Contains(g.SourceReason, "shows none") || g.RecordsLost != 0 {
		t.Errorf("watched by %q, %q, %d losses", g.Source, g.SourceReason, g.RecordsLost)
	}
	st := h.loop.Status()
	if busy := st.Busy + st.Idle + st.Switching; busy < st.Watched*999/1000 || busy > st.Watched*1001/1000 {
		t.Errorf("busy, idle and switching come to %v of %v", busy, st.Watched)
	}
}

// TestRecordIsPausedByDefault: where guests wait for their launches the record is paused, unless it
// was asked for, and they are billed what they used. A guest that is off the GPU in the middle of a
// launch ends the pause, since its launch is stamped as if it had been there.
func TestRecordIsPausedByDefault(t *testing.T) {
	for _, source := range []string{SourceAuto, SourceEvents} {
		h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} }, "none", Watching{Source: source})
		r := rand.New(rand.NewPCG(11, 12))
		for i := range 3 {
			h.join(string(rune('a'+i)), 1, newPage(t), &accountingtest.RecordedContext{
				PID: 100 + i, Group: accounting.GroupID(3 + i), Kernel: accountingtest.Random(r, 200*time.Microsecond, 0.2),
			})
		}
		paused := source == SourceAuto
		h.pass(2 * time.Second)
		if st := h.loop.WatcherStatus(); st.Source != SourceEvents || st.RecordPaused != paused || st.RecordPauses > 0 != paused {
			t.Errorf("%s: watched by %q, paused %v, %d times", source, st.Source, st.RecordPaused, st.RecordPauses)
		}
		h.pass(2 * time.Second)
		for i, c := range h.record.Contexts {
			if off := h.guests[i].o.Page.Bill().Used - c.Busy(); off > 20*ms || off < -20*ms {
				t.Errorf("%s: guest %d is billed %v of %v", source, i, h.guests[i].o.Page.Bill().Used, c.Busy())
			}
		}
		for h.record.Contexts[0].Outstanding() == 0 {
			h.pass(ms / 2)
		}
		h.gpu.Suspend(h.record.Contexts[0], true)
		h.guests[0].o.Page.SetDisabled(0, true)
		h.pass(200 * ms)
		if st := h.loop.WatcherStatus(); st.RecordPaused {
			t.Errorf("%s: paused while a guest is off the GPU", source)
		}
	}
}

// TestIdleGuestsAreNotBilled: a guest whose context stays on the engine while it has no work pays
// for what it computes, alone and beside another like it. So does a lone guest whose page has no
// record of work, by its counters.
func TestIdleGuestsAreNotBilled(t *testing.T) {
	for _, old := range []bool{false, true} {
		h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} }, "none", Watching{})
		r := rand.New(rand.NewPCG(7, 8))
		for i := range 2 {
			page := newPage(t)
			if old {
				page = oldPage(t, page)
			}
			c := &accountingtest.RecordedContext{PID: 100 + i, Group: accounting.GroupID(3 + i), Kernel: accountingtest.Random(r, ms, 0.1)}
			h.join(string(rune('a'+i)), 1, page, c)
			h.pass(34 * accounting.Easy.Phase(20*ms)) // the bill is of the last round
			if old {
				break
			}
		}
		for i, c := range h.record.Contexts {
			used, allowed := h.guests[i].o.Page.Bill().Used, c.Busy()/100
			if old {
				allowed *= 2 // what was before the first round is not billed
			}
			if off := used - c.Busy(); off > allowed || off < -allowed {
				t.Errorf("old page %v: guest %d is billed %v of %v", old, i, used, c.Busy())
			}
		}
	}
}

// TestSourceIsChosen: registers come first if they can be read, and the configuration may change
// that at any time.
func TestSourceIsChosen(t *testing.T) {
	device := &lockedGPU{locked: true}
	open := func(r *accountingtest.Record) gpu.Monitor { device.Record = r; return device }
	h := newRecording(t, open, "none", Watching{})
	page := newPage(t)
	h.join("a", 1, page, &accountingtest.RecordedContext{PID: 100, Group: 3, Kernel: func() (time.Duration, time.Duration) { return ms, ms }})
	h.pass(50 * ms)
	if g := h.loop.WatcherStatus(); g.Source != SourceEvents || !strings.Contains(g.SourceReason, "locked down") {
		t.Errorf("watched by %q: %q", g.Source, g.SourceReason)
	}
	if !page.WorkLog(0).Wanted() {
		t.Error("the executors' records of work are not wanted")
	}
	first := h.watcher()
	if err := h.loop.SetWatching(Watching{}); err != nil {
		t.Fatal(err)
	}
	h.pass(50 * ms)
	if h.watcher() != first {
		t.Error("another one watches after nothing was changed")
	}
	if err := h.loop.SetWatching(Watching{Source: SourceRegisters}); err == nil || !strings.Contains(err.Error(), "locked down") {
		t.Errorf("by registers: %v", err)
	}
	if err := h.loop.SetWatching(Watching{Records: accounting.RecorderConfig{Period: 30 * ms}}); err != nil {
		t.Fatal(err)
	}
	until(t, "another one watches", func() bool { return h.watcher() != first })
	if h.record.Closed.Load() {
		t.Error("the record was closed, and is read on")
	}
	h.pass(100 * ms)
	device.locked = false
	// Changed twice before the watcher has noticed.
	for _, source := range []string{SourceAuto, SourceEvents, SourceAuto} {
		if err := h.loop.SetWatching(Watching{Source: source, Registers: registers}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "registers are read", func() bool { return h.loop.WatcherStatus().Source == SourceRegisters && h.loop.Status().Rounds > 8 })
	if g := h.loop.WatcherStatus(); g.Source != SourceRegisters || g.SourceReason != "" {
		t.Errorf("watched by %q: %q", g.Source, g.SourceReason)
	}
	until(t, "the record is closed", func() bool { return h.record.Closed.Load() })
	if page.WorkLog(0).Wanted() {
		t.Error("executors record work that is not read")
	}
	// By launches, and back.
	if err := h.loop.SetWatching(Watching{Source: SourceLaunches}); err != nil {
		t.Fatal(err)
	}
	until(t, "executors are asked", func() bool { return h.loop.WatcherStatus().Source == SourceLaunches })
	h.pass(100 * ms)
	if !page.WorkLog(0).Wanted() {
		t.Error("the executors' records of work are not wanted")
	}
	if err := h.loop.SetWatching(Watching{Source: SourceRegisters, Registers: registers}); err != nil {
		t.Fatal(err)
	}
	until(t, "executors are not asked any more", func() bool { return h.loop.WatcherStatus().Source == SourceRegisters && !page.WorkLog(0).Wanted() })
}

// TestRecordBreaksOff: a GPU whose record can't be read any more has a problem, its guests go on,
// and it is opened again, with one reader at a time.
func TestRecordBreaksOff(t *testing.T) {
	h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} }, "dfq", Watching{})
	g := h.join("a", 1, newPage(t), &accountingtest.RecordedContext{PID: 100, Group: 3, Kernel: func() (time.Duration, time.Duration) { return ms, ms }})
	h.pass(50 * ms)
	h.record.Err = gpu.ErrLost
	h.clock.Advance(40 * ms)
	h.clock.AwaitWaiters(1) // to open it again
	if a := h.loop.Status(); a.Problem == "" || !strings.Contains(a.Problem, gpu.ErrLost.Error()) {
		t.Errorf("the record broke off: %+v", a)
	}
	if !h.record.Closed.Load() {
		t.Error("the record is still open")
	}
	if err := h.loop.SetWatching(Watching{Source: SourceEvents, Records: accounting.RecorderConfig{Period: 10 * ms}}); err != nil {
		t.Errorf("another interval while the GPU is gone: %v", err)
	}
	h.record.Err = nil
	h.record.Closed.Store(false)
	h.clock.Advance(reopenEvery)
	until(t, "the GPU is back", func() bool { return h.loop.Status().Problem == "" })
	before := g.o.Page.Bill().Used
	h.pass(100 * ms)
	if used := g.o.Page.Bill().Used - before; used < 40*ms || used > 60*ms {
		t.Errorf("billed %v of 100 ms, half of which it computed", used)
	}
}

// TestNoStatus: a GPU without any status source is accounted by what the guests report, unless
// something else is asked for. A GPU that refuses to be watched is an error.
func TestNoStatus(t *testing.T) {
	s, err := chooseSource(blindGPU{}, SourceAuto, statusSource{})
	if err != nil || s.kind != SourceLaunches || s.launches == nil {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, want := range []string{"shows none", "keeps none"} {
		if !strings.Contains(s.reason, want) {
			t.Errorf("%q: want %q in it", s.reason, want)
		}
	}
	for _, source := range []string{SourceEvents, SourceRegisters} {
		if _, err = chooseSource(blindGPU{}, source, statusSource{}); !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("by %s: %v", source, err)
		}
	}
	if _, err = chooseSource(lockedRecord{}, SourceAuto, statusSource{}); !errors.Is(err, errForbidden) || !strings.Contains(err.Error(), "shows none") {
		t.Errorf("what may not be read: %v", err)
	}
	if s, err = chooseSource(lockedRecord{}, SourceLaunches, statusSource{}); err != nil || s.kind != SourceLaunches || s.reason != "" {
		t.Errorf("by what was asked for: %+v, %v", s, err)
	}
}

var errForbidden = errors.New("give the daemon CAP_SYS_ADMIN")

// lockedRecord keeps a record that may not be read.
type lockedRecord struct{ gpu.Monitor }

func (lockedRecord) Events() (accounting.EventSource, error) { return nil, errForbidden }

// TestSharesByLaunches: without another source guests are charged by what they report, each for
// itself, and policies go by that. Their contexts' channel groups are not known then.
func TestSharesByLaunches(t *testing.T) {
	h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor { return clockGPU{r} }, "dfq", Watching{})
	r := rand.New(rand.NewPCG(9, 10))
	weights := []float64{1, 3}
	for i := range weights {
		h.join(string(rune('a'+i)), weights[i], newPage(t), &accountingtest.RecordedContext{
			PID: 100 + i, Depth: 2, Kernel: accountingtest.Random(r, 500*time.Microsecond, 1),
		})
	}
	h.pass(time.Second)
	var before [2]time.Duration
	for i, c := range h.record.Contexts {
		before[i] = c.Busy()
	}
	h.pass(5 * time.Second)
	var used [2]time.Duration
	for i, c := range h.record.Contexts {
		used[i] = c.Busy() - before[i]
	}
	if share := float64(used[1]) / float64(used[0]+used[1]); share < 0.7 || share > 0.8 {
		t.Errorf("the guest of weight 3 of 4 has %.1f %%: %v", 100*share, used)
	}
	for i, c := range h.record.Contexts {
		if off := float64(h.guests[i].o.Page.Bill().Used)/float64(c.Busy()) - 1; off < -0.1 || off > 0.3 {
			t.Errorf("guest %d is billed %v of %v", i, h.guests[i].o.Page.Bill().Used, c.Busy())
		}
	}
	if g := h.loop.WatcherStatus(); g.Source != SourceLaunches || g.SourceReason == "" {
		t.Errorf("watched by %q: %q", g.Source, g.SourceReason)
	}
}

// clockGPU has a clock, and nothing else.
type clockGPU struct{ *accountingtest.Record }

func (clockGPU) Properties() gpu.Properties { return gpu.Properties{Name: "unknown", SMs: 4} }
func (clockGPU) Close() error               { return nil }

// blindGPU shows nothing.
type blindGPU struct{ gpu.Monitor }

// registers is how registers are polled.
var registers = accounting.Config{Poll: ms, Quiet: 5 * ms}.WithDefaults()

// idleSource is the status of a GPU that does nothing.
type idleSource struct{ clock.Real }

func (s idleSource) Sample() (accounting.Status, error) {
	return accounting.Status{Clock: s.Now()}, nil
}
