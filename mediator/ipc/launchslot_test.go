package ipc

import (
	"errors"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"vgpud/internal/memfd"
	"vgpud/mediator/ipc/slotstate"
)

// find returns the slot of a launch as serve sees it.
func find(t testing.TB, p *ControlPage, launch uint64) (*LaunchSlot, Launch) {
	t.Helper()
	for i := range MaxLaunchSlots {
		if v, ok := p.LaunchSlot(i).Read(); ok && v.ID == launch {
			return p.LaunchSlot(i), v
		}
	}
	t.Fatalf("serve finds no launch %d", launch)
	return nil, Launch{}
}

// TestLaunchThroughItsSlot takes a launch through an eviction. Each side sees what the other wrote.
func TestLaunchThroughItsSlot(t *testing.T) {
	serve, exec := newPages(t)
	serve.SetMode(ModeByKernel)
	if exec.Mode() != ModeByKernel || !exec.HasLaunchSlots() {
		t.Fatalf("mode %d, stubs %v", exec.Mode(), exec.HasLaunchSlots())
	}
	want := Launch{
		Form: 2, Evictable: true, Priority: 7, Blocks: 128, PerSM: 8, Tasks: 1024, Threads: 256, SharedBytes: 4096,
		InputBytes: 1 << 30, Kernel: 0xfeedfacecafebeef, Arrived: 5 * time.Second, Predicted: 3 * time.Millisecond,
	}
	futex, context := serve.DaemonFutex(), exec.Context(9).Futex()
	c, ok := exec.Claim(9, &want)
	if !ok || !c.Held() || c.State() != slotstate.Ready || serve.DaemonFutex() == futex {
		t.Fatalf("claimed %v, %v, woken %v", ok, c.State(), serve.DaemonFutex() != futex)
	}
	slot, got := find(t, serve, c.Launch())
	want.ID, want.Context, want.State = c.Launch(), 9, slotstate.Ready
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ready (-exec +serve):\n%s", diff)
	}
	if slot.Evict(c.Launch(), 1, 1, 1) {
		t.Error("one that waits was told to leave")
	}
	if !slot.Run(c.Launch()) || slot.Run(c.Launch()) || c.State() != slotstate.ToRun || exec.Context(9).Futex() == context {
		t.Errorf("after Run: %v", c.State())
	}
	c.Start(6 * time.Second)
	context = exec.Context(9).Futex()
	if slot.Evict(c.Launch()+1, 1, 1, 1) || slot.Run(c.Launch()) {
		t.Error("another launch's number, or state, was taken")
	}
	if !slot.Evict(c.Launch(), math.MaxUint32, 7*time.Second, 8*time.Second) || exec.Context(9).Futex() == context {
		t.Fatal("not told to leave, or not woken")
	}
	if below, asked, deadline := c.EvictionRequest(); below != math.MaxUint32 || asked != 7*time.Second || deadline != 8*time.Second || c.State() != slotstate.ToEvict {
		t.Errorf("exec reads: below %d, asked %v, deadline %v, %v", below, asked, deadline, c.State())
	}
	futex = serve.DaemonFutex()
	c.Leave(9*time.Second, time.Second)
	if serve.DaemonFutex() == futex {
		t.Error("serve was not woken when the launch left")
	}
	want.State, want.Started, want.Stopped, want.Used, want.Evictions = slotstate.Ready, 6*time.Second, 9*time.Second, time.Second, 1
	want.Asked, want.Deadline, want.BelowSM = 7*time.Second, 8*time.Second, math.MaxUint32
	if _, got = find(t, serve, c.Launch()); cmp.Diff(want, got) != "" {
		t.Errorf("left (-want +serve):\n%s", cmp.Diff(want, got))
	}
	c.SetEvictable(false)
	for range 2 { // once more is no harm
		if !c.Grant() || c.State() != slotstate.ToRun {
			t.Errorf("granted by itself: %v", c.State())
		}
	}
	c.Start(10 * time.Second)
	futex = serve.DaemonFutex()
	c.Finish(3 * time.Second)
	want.State, want.Started, want.Used, want.Evictable = slotstate.Done, 10*time.Second, 3*time.Second, false
	if _, got = find(t, serve, c.Launch()); cmp.Diff(want, got) != "" || serve.DaemonFutex() == futex {
		t.Errorf("done, woken %v (-want +serve):\n%s", serve.DaemonFutex() != futex, cmp.Diff(want, got))
	}
	if c.Abandon(0); c.State() != slotstate.Done || c.Grant() {
		t.Error("one that is done went on")
	}
}

// TestSlotsAreReusedOldestFirst fills all slots. The one that is freed first is taken first.
func TestSlotsAreReusedOldestFirst(t *testing.T) {
	serve, exec := newPages(t)
	var claims []Claim
	for i := range MaxLaunchSlots {
		c, ok := exec.Claim(i%MaxContexts, &Launch{})
		if !ok || c.Launch() != uint64(i+1) {
			t.Fatalf("slot %d: launch %d, %v", i, c.Launch(), ok)
		}
		claims = append(claims, c)
	}
	if c, ok := exec.Claim(0, &Launch{}); ok || c.Held() {
		t.Fatal("there was one slot more than there is")
	}
	claims[7].Abandon(0)
	claims[3].Abandon(0)
	next, ok := exec.Claim(0, &Launch{})
	if !ok || next.slot != claims[3].slot {
		t.Error("not the one that has been there for longest")
	}
	if _, v := find(t, serve, claims[7].Launch()); v.State != slotstate.Done || !v.Failed {
		t.Errorf("the other can't be read any more: %+v", v)
	}
	// Calls for a launch that is gone change nothing.
	claims[3].Leave(1, 1)
	claims[3].Finish(1)
	claims[3].Start(1)
	if next.State() != slotstate.Ready || claims[3].State() != slotstate.Done || claims[3].slot.Run(claims[3].Launch()) {
		t.Errorf("the slot's new launch is %v", next.State())
	}
}

// TestSlotsOfADeadExecutor: the launches of a dead executor are ended, in whatever state, and those
// of the guest's other contexts are not.
func TestSlotsOfADeadExecutor(t *testing.T) {
	serve, vm := newPages(t)
	to := []func(c Claim){
		func(Claim) {},
		func(c Claim) { c.Grant() },
		func(c Claim) { c.Grant(); c.Start(1) },
		func(c Claim) { c.Grant(); c.Start(1); c.slot.Evict(c.Launch(), 1, 1, 1) },
	}
	var dead, others []Claim
	for _, bring := range to {
		for _, context := range []int{5, 6} {
			c, ok := vm.Claim(context, &Launch{})
			if !ok {
				t.Fatal("no slot")
			}
			if bring(c); context == 5 {
				dead = append(dead, c)
			} else {
				others = append(others, c)
			}
		}
	}
	// One executor died while it filled its slot in.
	half, _ := vm.Claim(5, &Launch{})
	half.slot.l.turn.Store(uint64(newTurn(half.launch, 5, slotstate.Prep)))
	// A hostile one wrote impossible states and contexts.
	var hostile []Claim
	for _, to := range []struct {
		context int
		state   slotstate.State
	}{{5, 99}, {5, slotstate.Done + 1}, {MaxContexts, slotstate.Running}, {255, 255}} {
		c, _ := vm.Claim(5, &Launch{})
		c.slot.l.turn.Store(uint64(newTurn(c.launch, to.context, to.state)))
		if _, ok := c.slot.Read(); ok {
			t.Errorf("state %v of context %d is believed", to.state, to.context)
		}
		hostile = append(hostile, c)
	}
	futex := serve.DaemonFutex()
	vm.FreeLaunchSlots(5)
	if serve.DaemonFutex() == futex {
		t.Error("serve was not told")
	}
	for i, c := range append(dead, half) {
		if _, v := find(t, serve, c.Launch()); v.State != slotstate.Done || !v.Failed {
			t.Errorf("slot %d of the dead: %+v", i, v)
		}
	}
	for i, c := range hostile {
		if _, state := c.slot.State(); state != slotstate.Done {
			t.Errorf("slot %d of the hostile one is %v", i, state)
		}
	}
	for i, want := range []slotstate.State{slotstate.Ready, slotstate.ToRun, slotstate.Running, slotstate.ToEvict} {
		if got := others[i].State(); got != want {
			t.Errorf("another's is %v, want %v", got, want)
		}
	}
}

// TestConcurrentClaims has executors claim, run and end launches beside a daemon that schedules and
// evicts them. No slot is claimed twice, none is lost, and each launch has its own number.
func TestConcurrentClaims(t *testing.T) {
	serve, exec := newPages(t)
	serve.SetMode(ModeByKernel)
	const executors, launches = 4, 300
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var all sync.WaitGroup
	for context := range executors {
		all.Go(func() {
			for range launches {
				c, ok := exec.Claim(context, &Launch{Tasks: uint32(context), Evictable: true})
				if !ok {
					t.Error("no slot, though few are taken")
					return
				}
				mu.Lock()
				if seen[c.Launch()] {
					t.Errorf("launch %d again", c.Launch())
				}
				seen[c.Launch()] = true
				mu.Unlock()
				futex := exec.Context(context).Futex()
				for c.State() != slotstate.ToRun {
					if err := exec.Context(context).Sleep(futex, time.Second); err != nil {
						t.Error(err)
						return
					}
					futex = exec.Context(context).Futex()
				}
				if c.Start(1); c.State() == slotstate.ToEvict {
					c.Leave(2, 1)
					c.Grant()
					c.Start(3)
				}
				c.Finish(2)
				if c.State() != slotstate.Done {
					t.Errorf("launch %d is %v at its end", c.Launch(), c.State())
				}
			}
		})
	}
	done := make(chan struct{})
	var daemon sync.WaitGroup
	daemon.Go(func() {
		for {
			futex := serve.DaemonFutex()
			for i := range MaxLaunchSlots {
				v, ok := serve.LaunchSlot(i).Read()
				switch {
				case !ok:
				case v.Tasks != uint32(v.Context):
					t.Errorf("slot %d is of two launches: %+v", i, v)
				case v.State == slotstate.Ready:
					serve.LaunchSlot(i).Run(v.ID)
				case v.State == slotstate.Running:
					serve.LaunchSlot(i).Evict(v.ID, 1, 1, 1)
				}
			}
			select {
			case <-done:
				return
			default:
			}
			if err := serve.DaemonSleep(futex, 10*time.Millisecond); err != nil {
				t.Error(err)
				return
			}
		}
	})
	all.Wait()
	close(done)
	daemon.Wait()
	for i := range MaxLaunchSlots {
		if v, ok := serve.LaunchSlot(i).Read(); ok && v.State != slotstate.Done {
			t.Errorf("slot %d was left %v", i, v.State)
		}
	}
}

// TestSlotsFollowTheStateMachine compares any order of calls, of both sides, with package
// slotstate.
func TestSlotsFollowTheStateMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page, err := NewControlPage()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := page.Close(); err != nil {
				t.Error(err)
			}
		}()
		old := rapid.Bool().Draw(t, "older executor")
		if !old {
			page.Context(0).SetLeavesUnstarted()
		}
		c, ok := page.Claim(0, &Launch{})
		if !ok {
			t.Fatal("no slot")
		}
		begun, clock, evictions := false, time.Duration(0), uint32(0)
		model, below := slotstate.Ready, uint32(0)
		apply := func(cause slotstate.Cause) bool {
			next, err := slotstate.Next(model, cause)
			model = next
			return err == nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"run": func(t *rapid.T) {
				if got, want := c.slot.Run(c.Launch()), apply(slotstate.Scheduled); got != want {
					t.Fatalf("Run: %v, want %v", got, want)
				}
			},
			"evict": func(t *rapid.T) {
				b := rapid.SampledFrom([]uint32{1, 2, 3, 4, math.MaxUint32}).Draw(t, "below")
				if old && model == slotstate.ToRun {
					all := b == math.MaxUint32
					if got := c.slot.Evict(c.Launch(), b, 2, 3); got != all {
						t.Fatalf("Evict: %v, want %v", got, all)
					}
					if all {
						apply(slotstate.Withdrawn)
						evictions++
					}
					return
				}
				more := model == slotstate.ToEvict && b > below
				if got, want := c.slot.Evict(c.Launch(), b, 2, 3), apply(slotstate.Asked) || more; got != want {
					t.Fatalf("Evict: %v, want %v", got, want)
				} else if got {
					below = b
				}
				if b, _, _ := c.EvictionRequest(); model == slotstate.ToEvict && b != below {
					t.Fatalf("exec reads %d, want %d", b, below)
				}
			},
			"refill": func(t *rapid.T) {
				if got, want := c.slot.Recall(c.Launch()), apply(slotstate.Recalled); got != want {
					t.Fatalf("Refill: %v, want %v", got, want)
				}
			},
			"withdraw": func(t *rapid.T) {
				if got, want := c.slot.Withdraw(c.Launch()), apply(slotstate.Withdrawn); got != want {
					t.Fatalf("Withdraw: %v, want %v", got, want)
				}
			},
			"start": func(t *rapid.T) {
				refused := model == slotstate.Ready
				if got := c.Start(clock); got == refused {
					t.Fatalf("Start of one that is %v: %v", model, got)
				}
				begun = apply(slotstate.Launched) || begun
			},
			"leave": func(*rapid.T) {
				if model == slotstate.Running || model == slotstate.ToEvict { // else nobody calls it
					c.Leave(clock, 1)
					apply(slotstate.Evicted)
					begun = false
					evictions++
				}
			},
			"wait":   func(t *rapid.T) { clock += time.Duration(rapid.IntRange(0, 2).Draw(t, "time")) },
			"finish": func(*rapid.T) { c.Finish(1); apply(slotstate.Finished) },
			"free":   func(*rapid.T) { page.FreeLaunchSlots(0); apply(slotstate.Abandoned) },
			"claim": func(t *rapid.T) {
				if model != slotstate.Done {
					return
				}
				if c, ok = page.Claim(0, &Launch{}); !ok {
					t.Fatal("no slot")
				}
				model, begun, evictions = slotstate.Ready, false, 0
			},
			"": func(t *rapid.T) {
				if got := c.State(); got != model {
					t.Fatalf("%v, want %v", got, model)
				}
				if got, want := c.Started(), begun && model.OnGPU(); got != want {
					t.Fatalf("%v, begun %v, want %v", model, got, want)
				}
				if v, ok := c.slot.Read(); ok && v.Evictions != evictions {
					t.Fatalf("%d evictions, want %d", v.Evictions, evictions)
				}
			},
		})
	})
}

// TestSilence: the daemon is silent SilenceLimit after its heartbeat.
func TestSilence(t *testing.T) {
	serve, exec := newPages(t)
	const now = 100 * time.Second
	serve.Beat(now)
	if exec.Silent(now+SilenceLimit) || !exec.Silent(now+SilenceLimit+1) {
		t.Error("silent at the wrong time")
	}
}

// TestModeWakesSleepers: a new mode wakes executors, whose launches may no longer have to wait.
func TestModeWakesSleepers(t *testing.T) {
	serve, exec := newPages(t)
	futex := exec.Context(4).Futex()
	serve.SetMode(ModeFree) // as it was
	if exec.Context(4).Futex() != futex {
		t.Error("woken for nothing")
	}
	serve.SetMode(ModeByKernel)
	if exec.Context(4).Futex() == futex {
		t.Error("not woken")
	}
}

// TestDaemonSleep: the daemon sleeps until a launch changes its state.
func TestDaemonSleep(t *testing.T) {
	serve, exec := newPages(t)
	c, _ := exec.Claim(0, &Launch{})
	futex := serve.DaemonFutex()
	done := make(chan error)
	go func() { done <- serve.DaemonSleep(futex, time.Hour) }()
	c.Abandon(0)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := serve.DaemonSleep(futex, time.Hour); err != nil { // rung meanwhile
		t.Fatal(err)
	}
	if err := serve.DaemonSleep(serve.DaemonFutex(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
}

// oldPage returns a page with the size of one version and the header of another.
func oldPage(t *testing.T, version int, says uint32) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("old", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "old")
	if err := f.Truncate(pageBytes[version]); err != nil {
		t.Fatal(err)
	}
	var head [8]byte
	for i := range 4 {
		head[i], head[4+i] = byte(uint32(pageMagic)>>(8*i)), byte(says>>(8*i))
	}
	if _, err := f.WriteAt(head[:], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestOlderVersions: a page of an older version works, without launch slots. A page whose size does
// not match its version is refused.
func TestOlderVersions(t *testing.T) {
	p, err := OpenControlPage(oldPage(t, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	p.SetSuspendWord(Suspend)
	p.SetMode(ModeByKernel)
	p.WakeDaemon()
	p.FreeLaunchSlots(0)
	p.Context(MaxContexts - 1).AddUnresponsive()
	if p.HasLaunchSlots() || p.Mode() != ModeFree || p.StoredSuspendWord() != Suspend || p.DaemonFutex() != 0 || p.Context(MaxContexts-1).Counters().Unresponsive != 1 {
		t.Errorf("slots %v, mode %d, verdict %d", p.HasLaunchSlots(), p.Mode(), p.StoredSuspendWord())
	}
	if err := p.DaemonSleep(0, time.Hour); !errors.Is(err, ErrNoLaunchSlots) {
		t.Errorf("SleepBell: %v", err)
	}
	c, ok := p.Claim(0, &Launch{})
	c.Start(1)
	c.Leave(1, 1)
	c.SetEvictable(false)
	c.Finish(1)
	c.Abandon(1)
	if _, read := p.LaunchSlot(5).Read(); ok || read || c.Held() || c.Grant() || c.State() != slotstate.None || p.LaunchSlot(5).Run(0) || p.LaunchSlot(5).Evict(0, 1, 1, 1) {
		t.Error("there was a slot")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for version := 1; version <= pageVersion; version++ {
		for says := range uint32(pageVersion + 2) {
			p, err := OpenControlPage(oldPage(t, version, says))
			if err == nil {
				if p.HasLaunchSlots() != (says >= 2) || p.HasWorkLog() != (says >= 3) {
					t.Errorf("version %d: slots %v, work %v", says, p.HasLaunchSlots(), p.HasWorkLog())
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				if says != uint32(version) {
					t.Errorf("a page of version %d's size that says it is of version %d was taken", version, says)
				}
			} else if says == uint32(version) {
				t.Errorf("version %d: %v", version, err)
			}
		}
	}
}

// BenchmarkClaim takes a launch through its slot without the daemon.
func BenchmarkClaim(b *testing.B) {
	p, err := NewControlPage()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	})
	v := Launch{Form: 2, Evictable: true}
	b.ReportAllocs()
	for b.Loop() {
		c, _ := p.Claim(0, &v)
		c.Grant()
		c.Start(1)
		c.Finish(2)
	}
}

// TestTurn: executors read the turn that the daemon wrote. There is none on a page without launch
// slots.
func TestTurn(t *testing.T) {
	p, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, want := range []Turn{{}, {Until: time.Hour}, {Until: time.Hour, Behind: true}, {Behind: true}, {Until: math.MaxInt64 / 2}, {}} {
		if p.SetTurn(want); p.Turn() != want {
			t.Errorf("%+v, want %+v", p.Turn(), want)
		}
	}
	p.launches = nil
	if p.SetTurn(Turn{Until: 1}); p.Turn() != (Turn{}) {
		t.Errorf("without launch slots: %+v", p.Turn())
	}
}
