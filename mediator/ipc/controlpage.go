package ipc

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/fairshare/quota"
	"vgpud/internal/memfd"
)

// MaxContexts is how many contexts of a guest a page has room for.
const MaxContexts = 32

const (
	pageMagic   = 0x6770_7676 // "vvpg"
	pageVersion = 4
	lineBytes   = 64 // a cache line

	// ControlPageBytes is the size of a guest's control page.
	ControlPageBytes = contextsBytes + launchAreaBytes + workAreaBytes + eventAreaBytes

	contextsOffset = 3 * lineBytes
	contextsBytes  = contextsOffset + MaxContexts*contextBytes
)

// pageBytes is the size of a page by its version. Each version extends the one before: version 2 by
// launch slots, version 3 by work logs, version 4 by event kernels. A vm keeps its page when serve and its executors are newer.
var pageBytes = [...]int64{
	1: contextsBytes, 2: contextsBytes + launchAreaBytes, 3: contextsBytes + launchAreaBytes + workAreaBytes, pageVersion: ControlPageBytes,
}

// ControlPage is a guest's control page. Its methods may be called from any goroutine of any
// process that maps it. Each word has one writer, which the method that writes it names.
type ControlPage struct {
	fd         *os.File
	mem        []byte
	l          *pageLayout
	launches   *launchArea // nil on a page of version 1
	work       *workArea   // nil before version 3
	events     *eventArea  // nil before version 4
	slots      [MaxLaunchSlots]LaunchSlot
	suspension suspensionFile
	touched    touched
}

// pageLayout is the layout of the page in memory, up to its launch slots.
//
// A process that writes a word of the page and then reads one that another process writes, where at
// least one of the two must see the other's, writes it by Swap or another read-modify-write operation.
// Outside Go's own memory the race detector's Store is a plain store, which a later load can overtake.
type pageLayout struct {
	magic, version uint32
	_              [lineBytes - 8]byte

	// Written by serve.
	heartbeat   atomic.Int64
	suspendWord atomic.Uint32
	disabled    atomic.Uint32 // one bit for each context; zero in a page of an older version
	weight      atomic.Uint64 // float64 bits
	used        atomic.Int64
	suspended   atomic.Int64
	suspensions atomic.Uint64
	pollingCPU  atomic.Uint32 // + 1; 0 is none
	capLimit    atomic.Uint32 // the cap, in billionths
	guarantee   atomic.Uint32 // in billionths
	ceiling     atomic.Uint32

	// Written by vm.
	doorbells atomic.Uint64
	attached  atomic.Uint32
	sliced    atomic.Uint32 // by serve, like disabled
	generated atomic.Uint64
	timeLimit atomic.Int64  // by serve, like disabled
	executed  atomic.Int64  // by serve, with used: + 1; 0 is unknown
	memory    atomic.Uint64 // by serve, like disabled: see Terms
	latency   atomic.Uint32 // by serve, like disabled: ns
	suspends  atomic.Uint32 // by serve, like disabled: ns
	events    atomic.Uint32 // by exec and vm: one bit for each event kernel's number that is taken
	_         [lineBytes - 60]byte

	contexts [MaxContexts]contextLayout
}

// SuspendWord is the daemon's verdict on a guest.
type SuspendWord uint32

const (
	// Run lets the guest's executors fetch commands.
	Run SuspendWord = iota
	// Suspend stops them. Their commands on the GPU run on (LoGA §4.3).
	Suspend
)

// Limits that concern the daemon's silence.
const (
	// SuspensionLimit is how long after the daemon's last heartbeat an executor obeys a suspension if
	// the daemon is gone.
	SuspensionLimit = 2 * time.Second
	// HungLimit is the same if the daemon's process lives. It may be late on a busy host, which is no
	// reason to let a suspended guest run; but it may also hang.
	HungLimit = 30 * time.Second
	// SilenceLimit is how long after the daemon's last heartbeat an executor begins to give its
	// launches their turns itself if the daemon is gone.
	SilenceLimit = 100 * time.Millisecond
	// LateLimit is the same if the daemon's process lives: nobody keeps the policy while launches
	// take turns themselves, but all guests of the GPU stand still for a daemon that hangs.
	LateLimit = 2 * time.Second
	// HeartbeatInterval is the longest time between two heartbeats while launches wait for the
	// daemon; else it is three times as long. Both must be well within SilenceLimit, because a
	// processor may be late to wake.
	HeartbeatInterval = 20 * time.Millisecond
)

// NewControlPage creates a page. The caller closes it.
func NewControlPage() (*ControlPage, error) {
	fd, err := unix.MemfdCreate("vgpud-page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create a guest's page: %w", err)
	}
	f := os.NewFile(uintptr(fd), "vgpud-page")
	if err := f.Truncate(ControlPageBytes); err != nil {
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

// OpenControlPage maps the page in f, which it takes over. It refuses a file whose size could
// change. It accepts pages of older versions, which lack what came later (see
// [ControlPage.HasLaunchSlots] and [ControlPage.HasWorkLog]).
func OpenControlPage(f *os.File) (*ControlPage, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat a guest's page: %w", closing(f, err))
	}
	version := slices.Index(pageBytes[:], st.Size())
	if version <= 0 {
		return nil, closing(f, fmt.Errorf("guest's page has %d bytes, want %d, or %v as older versions had: another version of vgpud made it",
			st.Size(), ControlPageBytes, pageBytes[1:pageVersion]))
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

func mapPage(f *os.File, version int) (*ControlPage, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, int(pageBytes[version]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a guest's page: %w", closing(f, err))
	}
	p := &ControlPage{fd: f, mem: mem, l: layoutOf(mem)}
	if version >= 2 {
		p.launches = launchAreaOf(mem)
		for i := range p.slots {
			p.slots[i] = LaunchSlot{page: p, l: &p.launches.slots[i]}
		}
	}
	if version >= 3 {
		p.work = workAreaOf(mem)
	}
	if version >= 4 {
		p.events = eventAreaOf(mem)
	}
	return p, nil
}

// closing closes f and returns err.
func closing(f *os.File, err error) error {
	if cerr := f.Close(); cerr != nil {
		return fmt.Errorf("%w (and close it: %v)", err, cerr)
	}
	return err
}

// File returns the page's descriptor, to be passed to other processes. It stays the page's.
func (p *ControlPage) File() *os.File { return p.fd }

// Close unmaps the page. No method may be running or be called afterwards.
func (p *ControlPage) Close() error {
	if err := unix.Munmap(p.mem); err != nil {
		return fmt.Errorf("unmap a guest's page: %w", err)
	}
	return p.fd.Close()
}

// Silent reports whether the daemon has been silent for [SilenceLimit] at now, an instant of
// clock.Real.
func (p *ControlPage) Silent(now time.Duration) bool {
	return now-time.Duration(p.l.heartbeat.Load()) > SilenceLimit
}

// TurnsExpired reports whether the daemon has been silent for [SilenceLimit] at now, an instant of
// clock.Real, and is gone, or has been silent for [LateLimit]. Then executors give launches their
// turns themselves. A process without the guest's suspension file takes a daemon that is silent to be
// gone.
func (p *ControlPage) TurnsExpired(now time.Duration) bool {
	return p.expired(now, SilenceLimit, LateLimit)
}

// expired reports whether the daemon has been silent at now for longer than it may if it is gone, or
// if its process lives.
func (p *ControlPage) expired(now, gone, lives time.Duration) bool {
	silent := now - time.Duration(p.l.heartbeat.Load())
	return silent > lives || silent > gone && !p.suspension.daemonLives(now)
}

// Beat records the daemon's heartbeat at now, an instant of clock.Real.
func (p *ControlPage) Beat(now time.Duration) { p.l.heartbeat.Store(int64(now)) }

// SetSuspendWord records the daemon's verdict on the guest, and wakes the guest's executors if it
// has changed. The daemon calls it after Beat.
func (p *ControlPage) SetSuspendWord(v SuspendWord) {
	if p.StoredSuspendWord() != v {
		p.l.suspendWord.Store(uint32(v))
		p.wakeAll()
	}
}

// SuspendWord returns the verdict that holds at now. A suspension ends by itself: see
// [ControlPage.SuspensionExpired]. A new daemon that has no access to the page yet can prolong it:
// see [SuspendUntil].
func (p *ControlPage) SuspendWord(now time.Duration) SuspendWord {
	v := SuspendWord(p.l.suspendWord.Load())
	if p.Silent(now) && p.suspension.suspends(now) {
		return Suspend
	}
	if v == Suspend && p.SuspensionExpired(now) {
		return Run
	}
	return v
}

// StoredSuspendWord returns the verdict as the daemon wrote it.
func (p *ControlPage) StoredSuspendWord() SuspendWord { return SuspendWord(p.l.suspendWord.Load()) }

// Bill is what the daemon has charged a guest. It lies on the page so that a restarted daemon goes
// on where the last one stopped.
type Bill struct {
	// Used is GPU time, Suspended for how long the guest was suspended.
	Used, Suspended time.Duration
	// Executed is what the guest's executors had counted ([Counters.GPUTime]) when Used was charged
	// last; below 0 if that is unknown: nothing was charged, or by an older daemon.
	Executed    time.Duration `json:",omitempty"`
	Suspensions uint64
	// Caused counts evictions that made room for the guest, and Charged is their cost. A page of
	// version 1 has no room for them.
	Caused  uint64
	Charged time.Duration
}

// SetBill records the bill. The daemon calls it, for all guests in each round: so words that are
// right already are not stored, which takes much longer than to load them.
func (p *ControlPage) SetBill(b Bill) {
	if p.Bill() == b {
		return
	}
	p.l.used.Store(int64(b.Used))
	p.l.executed.Store(int64(min(max(b.Executed, -1), maxTime)) + 1)
	p.l.suspended.Store(int64(b.Suspended))
	p.l.suspensions.Store(b.Suspensions)
	if p.launches != nil {
		p.launches.caused.Store(b.Caused)
		p.launches.charged.Store(int64(b.Charged))
	}
}

// Bill returns the bill that was last recorded.
func (p *ControlPage) Bill() Bill {
	b := Bill{
		Used: time.Duration(p.l.used.Load()), Suspended: time.Duration(p.l.suspended.Load()), Suspensions: p.l.suspensions.Load(),
		Executed: timeIn(&p.l.executed) - 1,
	}
	if p.launches != nil {
		b.Caused, b.Charged = p.launches.caused.Load(), time.Duration(p.launches.charged.Load())
	}
	return b
}

// Terms are what a guest has been granted, as package api explains it. They lie on the page for the
// same reason as the bill.
type Terms struct {
	// Weight is 0 if no daemon has set any terms.
	Weight float64 `json:"weight"`
	// Cap and Guarantee are fractions of the GPU's time, to a billionth.
	Cap             float64 `json:"cap"`
	Guarantee       float64 `json:"guarantee"`
	PriorityCeiling int     `json:"priority_ceiling"`
	// Latency is the time within which kernels of guests with a lower priority should leave the GPU
	// for the guest's, and is not on the page; 0 is the daemon's choice. See
	// [ControlPage.SetLeaving].
	Latency time.Duration `json:"latency,omitempty"`
	// KernelTimeLimit is what was asked for, and is not on the page: see
	// [ControlPage.SetKernelTimeLimit].
	KernelTimeLimit time.Duration `json:"kernel_time_limit,omitempty"`
	// Budget bounds the guest's GPU time, and is not on the page.
	Budget quota.Budget `json:"budget,omitzero"`
	// MemoryLimitBytes is the GPU memory that the guest may use; 0 is no limit.
	MemoryLimitBytes uint64 `json:"memory_limit,omitempty"`
}

// noMemoryLimit is the word of a guest without a limit. 0 is a page on which no daemon has set one.
const noMemoryLimit = math.MaxUint64

const billion = 1e9

// storeWord stores v unless w has it already.
func storeWord(w *atomic.Uint32, v uint32) {
	if w.Load() != v {
		w.Store(v)
	}
}

// SetTerms records the terms. The daemon calls it.
func (p *ControlPage) SetTerms(t Terms) {
	if w := math.Float64bits(t.Weight); p.l.weight.Load() != w {
		p.l.weight.Store(w)
	}
	storeWord(&p.l.capLimit, uint32(math.Round(t.Cap*billion)))
	storeWord(&p.l.guarantee, uint32(math.Round(t.Guarantee*billion)))
	storeWord(&p.l.ceiling, uint32(t.PriorityCeiling))
	limit := t.MemoryLimitBytes
	if limit == 0 {
		limit = noMemoryLimit
	}
	if p.l.memory.Load() != limit {
		p.l.memory.Store(limit)
	}
}

// MemoryLimit returns the limit of GPU memory that was last recorded, 0 for none. It returns false if
// no daemon has set any.
func (p *ControlPage) MemoryLimit() (bytes uint64, ok bool) {
	switch n := p.l.memory.Load(); n {
	case 0:
		return 0, false
	case noMemoryLimit:
		return 0, true
	default:
		return n, true
	}
}

// Terms returns the terms that were last recorded.
func (p *ControlPage) Terms() Terms {
	return Terms{
		Weight: math.Float64frombits(p.l.weight.Load()),
		Cap:    float64(p.l.capLimit.Load()) / billion, Guarantee: float64(p.l.guarantee.Load()) / billion,
		PriorityCeiling: int(p.l.ceiling.Load()), MemoryLimitBytes: p.memoryLimit(),
	}
}

func (p *ControlPage) memoryLimit() uint64 {
	n, _ := p.MemoryLimit()
	return n
}

// SetLeaving records within what time the guest's kernels should leave the GPU when told to, 0 if
// they are not told to for other guests, and within what time the hardware takes them off by itself,
// 0 if it does not. The daemon calls it.
func (p *ControlPage) SetLeaving(latency, suspension time.Duration) {
	storeWord(&p.l.latency, uint32(min(max(latency, 0), math.MaxUint32)))
	storeWord(&p.l.suspends, uint32(min(max(suspension, 0), math.MaxUint32)))
}

// Leaving returns what was last recorded with [ControlPage.SetLeaving].
func (p *ControlPage) Leaving() (latency, suspension time.Duration) {
	return time.Duration(p.l.latency.Load()), time.Duration(p.l.suspends.Load())
}

// SetKernelTimeLimit records the GPU time after which the guest's kernels are ended, 0 for none, and
// wakes the guest's executors if it has changed. The daemon calls it.
func (p *ControlPage) SetKernelTimeLimit(d time.Duration) {
	if d <= 0 {
		d = -1 // 0 is a page on which no daemon has set a limit
	}
	if p.l.timeLimit.Load() != int64(d) {
		p.l.timeLimit.Store(int64(d))
		p.wakeAll()
	}
}

// KernelTimeLimit returns the limit that was last recorded, 0 for none. It returns false if no
// daemon has set any.
func (p *ControlPage) KernelTimeLimit() (d time.Duration, ok bool) {
	d = time.Duration(p.l.timeLimit.Load())
	return max(d, 0), d != 0
}

// SetPollingCPU records the processor that the daemon's polling thread occupies.
func (p *ControlPage) SetPollingCPU(cpu int) { p.l.pollingCPU.Store(uint32(cpu) + 1) }

// PollingCPU returns the processor that executors should avoid, if there is one.
func (p *ControlPage) PollingCPU() (cpu int, ok bool) {
	n := p.l.pollingCPU.Load()
	return int(n) - 1, n != 0
}

// SetAttached records whether a VMM is connected. vm calls it.
func (p *ControlPage) SetAttached(attached bool) { storeBool(&p.l.attached, attached) }

// Attached reports whether a VMM is connected.
func (p *ControlPage) Attached() bool { return p.l.attached.Load() != 0 }

// Changed returns the number of contexts that came or went. The daemon reads the contexts again
// when it changes.
func (p *ControlPage) Changed() uint64 { return p.l.generated.Load() }

// AddChange counts a context that came or went. vm and exec call it.
func (p *ControlPage) AddChange() { p.l.generated.Add(1) }

// AddDoorbell counts a doorbell of the guest's. vm calls it.
func (p *ControlPage) AddDoorbell() { p.l.doorbells.Add(1) }

// Doorbells returns the number of the guest's doorbells.
func (p *ControlPage) Doorbells() uint64 { return count(&p.l.doorbells) }

// Context returns context slot i of the page, 0 to MaxContexts-1.
func (p *ControlPage) Context(i int) *ContextSlot { return (*ContextSlot)(&p.l.contexts[i]) }

// Executors returns how many contexts have an executor now.
func (p *ControlPage) Executors() (n int) {
	for i := range p.l.contexts {
		if p.Context(i).State() != ContextNone {
			n++
		}
	}
	return n
}
