package ipc

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/internal/memfd"
)

// MaxContexts is how many contexts of a guest a page has room for.
const MaxContexts = 32

const (
	pageMagic   = 0x6770_7676 // "vvpg"
	pageVersion = 3
	lineBytes   = 64 // what is written by different processes lies on lines of its own

	// PageBytes is the size of a guest's page.
	PageBytes = contextsBytes + stubAreaBytes + workAreaBytes

	contextsBytes = 3*lineBytes + MaxContexts*contextBytes
	contextBytes  = 4 * lineBytes
)

// pageBytes is the size of a page by its version. Each version has what the one
// before had, and more: 2 the stubs, 3 the accounts of work. A vm goes on with its
// page when serve and its executors are newer.
var pageBytes = [...]int64{1: contextsBytes, 2: contextsBytes + stubAreaBytes, pageVersion: PageBytes}

// Page is a guest's shared page. All its methods may be called from any
// goroutine of any process that maps it; each word has one writer, named at the
// method.
type Page struct {
	fd    *os.File
	mem   []byte
	l     *pageLayout
	area  *stubArea // nil on a page of version 1
	work  *workArea // nil before version 3
	stubs [MaxStubs]StubSlot
	until until
}

// pageLayout is the page as it lies in memory, up to its stubs.
type pageLayout struct {
	magic, version uint32
	_              [lineBytes - 8]byte

	// Written by serve.
	heartbeat   atomic.Int64
	verdict     atomic.Uint32
	disabled    atomic.Uint32 // a bit a context; zero in a page of an older version
	weight      atomic.Uint64 // float64 bits
	used        atomic.Int64
	suspended   atomic.Int64
	suspensions atomic.Uint64
	watchCPU    atomic.Uint32 // + 1; 0 is none
	limit       atomic.Uint32 // the cap, in billionths
	guarantee   atomic.Uint32 // in billionths
	ceiling     atomic.Uint32

	// Written by vm.
	doorbells atomic.Uint64
	attached  atomic.Uint32
	sliced    atomic.Uint32 // by serve, like disabled
	generated atomic.Uint64
	_         [lineBytes - 24]byte

	contexts [MaxContexts]contextLayout
}

type contextLayout struct {
	// Rung by anybody.
	bell bell
	_    [lineBytes - 8]byte

	// Written by exec: identity and state.
	state   atomic.Uint32
	group   atomic.Uint32 // channel group id + 1; 0 is none
	pid     atomic.Int32
	backlog atomic.Uint32
	filling atomic.Uint32 // see SetFilling; zero with executors of older versions
	unbegun atomic.Uint32 // see SetLeavesUnbegun; zero with executors of older versions
	ahead   atomic.Uint64 // see Ahead; zero with executors of older versions
	waiting atomic.Int64  // see SetWaiting; likewise
	_       [lineBytes - 40]byte

	// Written by exec: counters.
	fetched  atomic.Uint64
	finished atomic.Uint64
	kernels  atomic.Uint64
	errors   atomic.Uint64
	gpuTime  atomic.Int64
	copied   atomic.Uint64
	lateTime atomic.Int64
	memory   atomic.Uint64 // taken on the GPU, bytes

	// Written by exec: counters of the command path.
	commands atomic.Uint64
	wakeups  atomic.Uint64

	// Written by exec: counters of preemption, zero in a page of version 1.
	evictions    atomic.Uint64
	relaunches   atomic.Uint64
	evictionTime atomic.Int64
	liars        atomic.Uint64
	ignored      atomic.Uint64 // priorities above the ceiling
	worked       atomic.Int64  // see SetWorking; zero with executors of older versions
}

// Verdict is what the daemon has decided about a guest.
type Verdict uint32

const (
	// Run lets the guest's executors fetch commands.
	Run Verdict = iota
	// Suspend makes them stop fetching. What they have put on the GPU runs on
	// (LoGA §4.3).
	Suspend
)

// Limits that hold when the daemon is silent.
const (
	// SuspensionLimit is how long after the daemon's last heartbeat an
	// executor goes on obeying a suspension.
	SuspensionLimit = 2 * time.Second
	// HeartbeatEvery is how long the daemon takes at the most to show again that it is
	// alive where launches wait for it; elsewhere it may take three times as long. Both
	// must be well within [SilenceLimit], for a processor may be late to wake.
	HeartbeatEvery = 20 * time.Millisecond
)

// ContextState is where a context's executor stands.
type ContextState uint32

const (
	// ContextNone: the slot is free.
	ContextNone ContextState = iota
	// ContextStarting: the executor makes its GPU context.
	ContextStarting
	// ContextReady: it carries out commands.
	ContextReady
	// ContextFaulted: a kernel's fault, or the GPU's end, ended the GPU context.
	ContextFaulted
	// ContextEnding: its executor closes the GPU context, or has.
	ContextEnding
)

var contextStateNames = [...]string{"none", "starting", "ready", "faulted", "ending"}

// String is the state's name in output.
func (s ContextState) String() string {
	if int(s) < len(contextStateNames) {
		return contextStateNames[s]
	}
	return fmt.Sprintf("ContextState(%d)", uint32(s))
}

// NewPage makes a page in memory of its own. The caller closes it.
func NewPage() (*Page, error) {
	fd, err := unix.MemfdCreate("vgpud-page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create a guest's page: %w", err)
	}
	f := os.NewFile(uintptr(fd), "vgpud-page")
	if err := f.Truncate(PageBytes); err != nil {
		return nil, fmt.Errorf("size a guest's page: %w", closing(f, err))
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		return nil, fmt.Errorf("seal a guest's page: %w", closing(f, err))
	}
	p, err := mapPage(f, pageVersion)
	if err != nil {
		return nil, err
	}
	p.l.magic, p.l.version = pageMagic, pageVersion
	return p, nil
}

// OpenPage maps the page that f, which it takes over, holds, and refuses one whose size
// could change under whoever maps it. A page of an older
// version is taken too; it lacks what came later (see [Page.HasStubs] and
// [Page.HasWork]).
func OpenPage(f *os.File) (*Page, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at a guest's page: %w", closing(f, err))
	}
	version := slices.Index(pageBytes[:], st.Size())
	if version <= 0 {
		return nil, closing(f, fmt.Errorf("guest's page has %d bytes, want %d, or %v as older versions had: another version of vgpud made it",
			st.Size(), PageBytes, pageBytes[1:pageVersion]))
	}
	if err := memfd.Check(f, pageBytes[version]); err != nil {
		return nil, closing(f, fmt.Errorf("guest's page: %w", err))
	}
	p, err := mapPage(f, version)
	if err != nil {
		return nil, err
	}
	if p.l.magic != pageMagic || p.l.version != uint32(version) {
		err := fmt.Errorf("guest's page says magic %#x version %d, want %#x and %d for its size: another version of vgpud made it",
			p.l.magic, p.l.version, uint32(pageMagic), version)
		if cerr := p.Close(); cerr != nil {
			return nil, cerr
		}
		return nil, err
	}
	return p, nil
}

func mapPage(f *os.File, version int) (*Page, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, int(pageBytes[version]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a guest's page: %w", closing(f, err))
	}
	p := &Page{fd: f, mem: mem, l: layoutOf(mem)}
	if version >= 2 {
		p.area = areaOf(mem)
		for i := range p.stubs {
			p.stubs[i] = StubSlot{page: p, l: &p.area.stubs[i]}
		}
	}
	if version >= 3 {
		p.work = workOf(mem)
	}
	return p, nil
}

// closing closes f on the way out with err, which is what matters.
func closing(f *os.File, err error) error {
	if cerr := f.Close(); cerr != nil {
		return fmt.Errorf("%w (and close it: %v)", err, cerr)
	}
	return err
}

// File is the page's descriptor, to be passed on. It stays the page's.
func (p *Page) File() *os.File { return p.fd }

// Close unmaps the page. No method may be running or be called again.
func (p *Page) Close() error {
	if err := unix.Munmap(p.mem); err != nil {
		return fmt.Errorf("unmap a guest's page: %w", err)
	}
	return p.fd.Close()
}

// Beat is the daemon's heartbeat at now, an instant of clock.Real.
func (p *Page) Beat(now time.Duration) { p.l.heartbeat.Store(int64(now)) }

// SetVerdict records the daemon's verdict and wakes the guest's executors
// where it is a new one. The daemon calls it after a Beat.
func (p *Page) SetVerdict(v Verdict) {
	if Verdict(p.l.verdict.Swap(uint32(v))) == v {
		return
	}
	for i := range p.l.contexts {
		p.Context(i).Ring()
	}
}

// Verdict is what holds at now: a suspension ends by itself when the daemon
// has been silent for [SuspensionLimit]. One that has not met the guest's process yet
// may say otherwise: see [SuspendUntil].
func (p *Page) Verdict(now time.Duration) Verdict {
	v := Verdict(p.l.verdict.Load())
	if p.Silent(now) && p.until.holds(now) {
		return Suspend
	}
	if v == Suspend && p.Abandoned(now) {
		return Run
	}
	return v
}

// Decided is the verdict as the daemon wrote it.
func (p *Page) Decided() Verdict { return Verdict(p.l.verdict.Load()) }

// Bill is what the daemon has charged a guest with. It lies on the page so that
// a daemon that was restarted goes on where the last one stopped.
type Bill struct {
	// Used is GPU time, Suspended how long the guest was held.
	Used, Suspended time.Duration
	Suspensions     uint64
	// Caused is how many evictions there were for the guest's sake, and Charged
	// what they cost. A page of version 1 has no room for them.
	Caused  uint64
	Charged time.Duration
}

// SetBill records the bill; the daemon calls it.
func (p *Page) SetBill(b Bill) {
	p.l.used.Store(int64(b.Used))
	p.l.suspended.Store(int64(b.Suspended))
	p.l.suspensions.Store(b.Suspensions)
	if p.area != nil {
		p.area.caused.Store(b.Caused)
		p.area.charged.Store(int64(b.Charged))
	}
}

// Bill is what was last recorded.
func (p *Page) Bill() Bill {
	b := Bill{
		Used: time.Duration(p.l.used.Load()), Suspended: time.Duration(p.l.suspended.Load()), Suspensions: p.l.suspensions.Load(),
	}
	if p.area != nil {
		b.Caused, b.Charged = p.area.caused.Load(), time.Duration(p.area.charged.Load())
	}
	return b
}

// Terms are what a guest has been granted, as package api explains it. They lie
// on the page for the same reason as the bill.
type Terms struct {
	// Weight is 0 where no daemon has set any terms.
	Weight float64 `json:"weight"`
	// Cap and Guarantee are parts of the GPU's time, kept to the billionth.
	Cap             float64 `json:"cap"`
	Guarantee       float64 `json:"guarantee"`
	PriorityCeiling int     `json:"priority_ceiling"`
}

const billion = 1e9

// SetTerms records the terms; the daemon calls it.
func (p *Page) SetTerms(t Terms) {
	p.l.weight.Store(math.Float64bits(t.Weight))
	p.l.limit.Store(uint32(math.Round(t.Cap * billion)))
	p.l.guarantee.Store(uint32(math.Round(t.Guarantee * billion)))
	p.l.ceiling.Store(uint32(t.PriorityCeiling))
}

// Terms are what was last recorded.
func (p *Page) Terms() Terms {
	return Terms{
		Weight: math.Float64frombits(p.l.weight.Load()),
		Cap:    float64(p.l.limit.Load()) / billion, Guarantee: float64(p.l.guarantee.Load()) / billion,
		PriorityCeiling: int(p.l.ceiling.Load()),
	}
}

// SetWatchCPU says which processor the daemon's polling thread keeps to itself.
func (p *Page) SetWatchCPU(cpu int) { p.l.watchCPU.Store(uint32(cpu) + 1) }

// WatchCPU is the processor that executors do well to stay away from, if there
// is one.
func (p *Page) WatchCPU() (cpu int, ok bool) {
	n := p.l.watchCPU.Load()
	return int(n) - 1, n != 0
}

// SetAttached records whether a VMM is connected; vm calls it.
func (p *Page) SetAttached(yes bool) {
	var v uint32
	if yes {
		v = 1
	}
	p.l.attached.Store(v)
}

// Attached is whether a VMM is connected.
func (p *Page) Attached() bool { return p.l.attached.Load() != 0 }

// Changed counts contexts that came or went; the daemon looks again when it
// moves.
func (p *Page) Changed() uint64 { return p.l.generated.Load() }

// AddChange says that a context came or went; vm and exec call it.
func (p *Page) AddChange() { p.l.generated.Add(1) }

// AddDoorbell counts a doorbell that the guest rang; vm calls it.
func (p *Page) AddDoorbell() { p.l.doorbells.Add(1) }

// Doorbells is how many doorbells the guest rang.
func (p *Page) Doorbells() uint64 { return count(&p.l.doorbells) }

// Context is slot i of the page, 0 to MaxContexts-1.
func (p *Page) Context(i int) *ContextSlot { return (*ContextSlot)(&p.l.contexts[i]) }

// Executors is how many contexts have an executor now.
func (p *Page) Executors() (n int) {
	for i := range p.l.contexts {
		if p.Context(i).State() != ContextNone {
			n++
		}
	}
	return n
}

// ContextSlot is one context's part of the page. Its executor writes it, except
// the bell.
type ContextSlot contextLayout

// Reset makes the slot a new executor's.
func (c *ContextSlot) Reset(pid int) {
	if pid < 0 || pid > math.MaxInt32 {
		pid = 0
	}
	c.group.Store(0)
	c.pid.Store(int32(pid))
	c.backlog.Store(0)
	c.filling.Store(0)
	c.waiting.Store(0)
	c.ahead.Store(0)
	c.memory.Store(0)
	c.worked.Store(0)
	c.unbegun.Store(0)
	c.state.Store(uint32(ContextStarting))
}

// Free gives the slot back when its executor is gone, and what memory that had.
// Its counters stay, so that the guest's sums never go back.
func (c *ContextSlot) Free() {
	c.group.Store(0)
	c.pid.Store(0)
	c.backlog.Store(0)
	c.filling.Store(0)
	c.waiting.Store(0)
	c.ahead.Store(0)
	c.unbegun.Store(0)
	c.memory.Store(0)
	c.finished.Store(c.fetched.Load())
	c.state.Store(uint32(ContextNone))
}

// SetLeavesUnbegun says that the context's executor lets launches that were told to leave do
// so before they have begun. The executor calls it before it claims a slot for a launch.
func (c *ContextSlot) SetLeavesUnbegun() { c.unbegun.Store(1) }

// SetReady publishes the context's channel group.
func (c *ContextSlot) SetReady(group uint16) {
	c.group.Store(uint32(group) + 1)
	c.state.Store(uint32(ContextReady))
}

// SetFaulted says that a kernel ended the GPU context.
func (c *ContextSlot) SetFaulted() { c.state.Store(uint32(ContextFaulted)) }

// SetEnding says that the executor is about to close the GPU context, of which the
// GPU's driver then knows no more.
func (c *ContextSlot) SetEnding() { c.state.Store(uint32(ContextEnding)) }

// SetLost says that the GPU is gone, and the context's channel group with it: its
// number will be another's when the GPU is back.
func (c *ContextSlot) SetLost() {
	c.group.Store(0)
	c.SetFaulted()
}

// State is where the executor stands. Of one that says what there is not nothing is known,
// and nothing is to be waited for.
func (c *ContextSlot) State() ContextState {
	s := ContextState(c.state.Load())
	if int(s) >= len(contextStateNames) {
		return ContextFaulted
	}
	return s
}

// Group is the context's channel group while it has one.
func (c *ContextSlot) Group() (id uint16, ok bool) {
	g := c.group.Load()
	return uint16(g - 1), g != 0 && g <= math.MaxUint16+1
}

// PID is the executor's process, 0 for none.
func (c *ContextSlot) PID() int { return int(max(c.pid.Load(), 0)) }

// SetBacklog says whether commands wait in the context's rings unfetched.
func (c *ContextSlot) SetBacklog(yes bool) {
	var v uint32
	if yes {
		v = 1
	}
	if c.backlog.Load() != v {
		c.backlog.Store(v)
	}
}

// Backlog is whether commands wait unfetched.
func (c *ContextSlot) Backlog() bool { return c.backlog.Load() != 0 }

// SetFilling says whether the context has memory filled, copied or zeroed on the GPU
// now. That is the work of the GPU's own kernels, which a suspension finds there like a
// guest's.
func (c *ContextSlot) SetFilling(yes bool) {
	var v uint32
	if yes {
		v = 1
	}
	if c.filling.Load() != v {
		c.filling.Store(v)
	}
}

// AddFilled takes note of a fill or copy that was on the GPU for t, of which the guest was
// suspended for late.
func (c *ContextSlot) AddFilled(t, late time.Duration) {
	c.gpuTime.Add(int64(t))
	c.lateTime.Add(int64(late))
}

// AddFetched counts a launch that the executor put on the GPU.
func (c *ContextSlot) AddFetched() { c.fetched.Add(1) }

// AddFinished counts one that ended, with the GPU time from its start to its
// end, how much of that the guest was suspended for, and whether it failed.
func (c *ContextSlot) AddFinished(t, late time.Duration, failed bool) {
	if failed {
		c.errors.Add(1)
	} else {
		c.kernels.Add(1)
	}
	c.gpuTime.Add(int64(t))
	c.lateTime.Add(int64(late))
	c.finished.Add(1)
}

// AddLeft takes note of a launch that has left the GPU after a run of GPU time t,
// of which the guest was suspended for late, be it done or not. It is fetched anew
// when it goes on.
func (c *ContextSlot) AddLeft(t, late time.Duration) {
	c.gpuTime.Add(int64(t))
	c.lateTime.Add(int64(late))
	c.finished.Add(1)
}

// AddEnded counts a launch whose runs AddLeft has counted, and whether it failed.
func (c *ContextSlot) AddEnded(failed bool) {
	if failed {
		c.errors.Add(1)
	} else {
		c.kernels.Add(1)
	}
}

// AddError counts a command other than a launch that failed.
func (c *ContextSlot) AddError() { c.errors.Add(1) }

// AddCopied counts bytes copied.
func (c *ContextSlot) AddCopied(n uint64) { c.copied.Add(n) }

// AddCommands counts commands fetched, of all kinds.
func (c *ContextSlot) AddCommands(n uint64) { c.commands.Add(n) }

// AddWakeup counts a time that the executor was woken.
func (c *ContextSlot) AddWakeup() { c.wakeups.Add(1) }

// Outstanding is how many launches are on the GPU now.
func (c *ContextSlot) Outstanding() uint64 {
	finished := c.finished.Load() // first, so that the difference is never negative
	if n := c.fetched.Load() - finished; n <= maxOutstanding {
		return n
	}
	return maxOutstanding // the words are nonsense
}

// OnGPU is whether the context has anything on the GPU's compute engine now: launches, or
// memory that is being filled.
func (c *ContextSlot) OnGPU() bool { return c.filling.Load() != 0 || c.Outstanding() > 0 }
