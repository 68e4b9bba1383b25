package daemon

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// countedGPU is an idle GPU that keeps a count of its own, which the test sets.
type countedGPU struct {
	idleGPU
	mu   *sync.Mutex
	busy map[string]time.Duration
}

func newCountedGPU() countedGPU {
	return countedGPU{mu: new(sync.Mutex), busy: make(map[string]time.Duration)}
}

func (g countedGPU) Counts() (gpu.Counts, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := gpu.Counts{Busy: make(map[string]time.Duration)}
	for name, d := range g.busy {
		c.Busy[name] = d
	}
	return c, nil
}

func (g countedGPU) add(name string, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy[name] += d
}

func TestSettle(t *testing.T) {
	own := func(d time.Duration) *time.Duration { return &d }
	for name, c := range map[string]struct {
		claims []claim
		want   []settlement
	}{
		"the executors' count": {[]claim{{gap: 100 * ms, executed: 30 * ms}}, []settlement{{billed: 30 * ms}}},
		"no more than the time that passed": {
			[]claim{{gap: 100 * ms, executed: time.Hour}}, []settlement{{billed: 100 * ms}},
		},
		"both had the GPU all the time, in turns": {
			[]claim{{gap: 100 * ms, executed: 100 * ms}, {gap: 100 * ms, executed: 100 * ms}}, []settlement{{billed: 50 * ms}, {billed: 50 * ms}},
		},
		"one that claims too much": {
			[]claim{{gap: 100 * ms, executed: time.Hour}, {gap: 100 * ms, executed: 20 * ms}}, []settlement{{billed: 80 * ms}, {billed: 20 * ms}},
		},
		"a kernel that has not ended": {
			[]claim{{gap: 100 * ms, executed: 10 * ms, working: true}, {gap: 100 * ms, executed: 20 * ms}},
			[]settlement{{billed: 10 * ms, unaccounted: 70 * ms}, {billed: 20 * ms}},
		},
		"the GPU's count":                    {[]claim{{gap: 100 * ms, executed: 90 * ms, own: own(60 * ms)}}, []settlement{{billed: 60 * ms}}},
		"the GPU's count of a kernel so far": {[]claim{{gap: 100 * ms, working: true, own: own(60 * ms)}}, []settlement{{billed: 60 * ms}}},
		"another's context by its name": {
			[]claim{{gap: 100 * ms, executed: 10 * ms, own: own(60 * ms)}}, []settlement{{billed: 10 * ms}},
		},
		"more was charged than counted":  {[]claim{{gap: 100 * ms, executed: 10 * ms, own: own(-ms)}}, []settlement{{}}},
		"a page whose counts went back":  {[]claim{{gap: 100 * ms, executed: -10 * ms}}, []settlement{{}}},
		"a guest that was adopted later": {[]claim{{gap: 100 * ms, executed: 90 * ms}, {gap: 300 * ms, executed: 200 * ms}}, []settlement{{billed: 90 * ms}, {billed: 200 * ms}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := settle(c.claims)
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("guest %d: %+v, want %+v", i, got[i], c.want[i])
				}
			}
		})
	}
}

// TestSettleBounds checks that nobody is billed more than the guest's own page says, all together no
// more than the time that passed, and that what one guest claims never raises another's bill, nor
// lowers it below an equal part.
func TestSettleBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gap := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "gap"))
		duration := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(-int64(time.Hour), int64(24*time.Hour)).Draw(t, "d"))
		})
		claims := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) claim {
			c := claim{gap: gap, executed: duration.Draw(t, "executed"), working: rapid.Bool().Draw(t, "working")}
			if rapid.Bool().Draw(t, "counted") {
				c.own = new(duration.Draw(t, "own"))
			}
			return c
		}), 1, 9).Draw(t, "claims")
		got := settle(claims)
		sum := time.Duration(0)
		for i, s := range got {
			c := &claims[i]
			most := min(max(c.executed, 0), gap)
			if c.own != nil && c.working {
				most = gap
			}
			if s.billed < 0 || s.billed > most || s.unaccounted < 0 || s.billed+s.unaccounted > gap || s.unaccounted > 0 && !c.working {
				t.Fatalf("guest %d: %+v by %+v", i, s, c)
			}
			sum += s.billed
		}
		if sum > gap {
			t.Fatalf("%v billed in %v", sum, gap)
		}
		liar := rapid.IntRange(0, len(claims)-1).Draw(t, "liar")
		claims[liar].executed = 1 << 57
		lied := settle(claims)
		for i := range claims {
			if equal := gap / time.Duration(len(claims)); i != liar && (lied[i].billed > got[i].billed || lied[i].billed < min(got[i].billed, equal)) {
				t.Fatalf("guest %d is billed %v, and %v beside a liar", i, got[i].billed, lied[i].billed)
			}
		}
	})
}

// TestUnwatchedIsBilled: what guests used while no daemon ran is billed, once, by the GPU's own
// count as far as the guest's page agrees.
func TestUnwatchedIsBilled(t *testing.T) {
	dir, device := runDir(t), newCountedGPU()
	d := startDaemonOn(t, dir, device)
	d.create("a")
	d.create("b")
	device.add("a", 10*ms)
	d.charge("a", 10*ms)
	d.service.save(d.guest("a"))
	pages := map[string]*os.File{"a": d.pageOf("a"), "b": d.pageOf("b")}
	executes := func(name string, by time.Duration) {
		page := pages[name]
		pages[name] = dup(t, page)
		scribble(t, page, func(p *ipc.ControlPage) {
			c := p.Context(ipc.MaxContexts - 1)
			c.AddFetched()
			c.AddFinished(by, 0, false)
		})
	}
	d.stop()
	d.age(60 * ms)
	device.add("a", 40*ms)
	executes("a", 50*ms) // with another's turns
	device.add("b", 30*ms)
	executes("b", 20*ms) // the rest was another's, by the name of b
	d = startDaemonOn(t, dir, device)
	bills := func(what string, a, b time.Duration) {
		t.Helper()
		if v := d.vm("a"); v.GPUSeconds != a.Seconds() || v.UnaccountedSeconds != 0 {
			t.Errorf("%s: a is billed %v s, and %v s are unaccounted for; want %v", what, v.GPUSeconds, v.UnaccountedSeconds, a)
		}
		if v := d.vm("b"); v.GPUSeconds != b.Seconds() {
			t.Errorf("%s: b is billed %v s, want %v", what, v.GPUSeconds, b)
		}
	}
	bills("after a time without a daemon", 50*ms, 20*ms)
	d.used("after a time without a daemon", 70*ms)
	d.stop()
	d = startDaemonOn(t, dir, device)
	bills("after a restart in which nothing was used", 50*ms, 20*ms)

	// One that ends meanwhile.
	d.service.save(d.guest("a"))
	v := d.vm("a")
	d.stop()
	device.add("a", 5*ms)
	signal(t, v.PID, unix.SIGKILL)
	processEnds(t, v.PID)
	d = startDaemonOn(t, dir, device)
	d.used("of a guest that ended", 75*ms)
}

// TestOwnCountIsTheGuests: what the GPU counted of an earlier guest of the name is not shown as this
// guest's, by the daemon that created it or by the next one.
func TestOwnCountIsTheGuests(t *testing.T) {
	dir, device := runDir(t), newCountedGPU()
	device.add("a", time.Hour)
	d := startDaemonOn(t, dir, device)
	d.create("a")
	device.add("a", 10*ms)
	for range 2 {
		if v := d.vm("a"); v.GPUSecondsOwn == nil || *v.GPUSecondsOwn != 0.01 {
			t.Errorf("%+v", v)
		}
		d.service.save(d.guest("a"))
		d.stop()
		d = startDaemonOn(t, dir, device)
	}
}

// TestUnaccounted: on a GPU that keeps no count, what executors counted is billed, and the time of a
// kernel that has not ended is said to be unaccounted for, also in the record.
func TestUnaccounted(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	d.create("a")
	d.charge("a", 10*ms)
	page := d.pageOf("a")
	d.stop()
	d.age(60 * ms)
	scribble(t, page, func(p *ipc.ControlPage) {
		c := p.Context(ipc.MaxContexts - 1)
		c.SetReady(99)
		c.AddFetched()
		c.AddFinished(20*ms, 0, false)
		c.AddFetched() // and is under way
	})
	d = startDaemon(t, dir)
	v := d.vm("a")
	if v.GPUSeconds != 0.03 || v.UnaccountedSeconds < 0.03 || v.UnaccountedSeconds > time.Minute.Seconds() {
		t.Errorf("%v s billed, want 0.03, and %v s unaccounted for", v.GPUSeconds, v.UnaccountedSeconds)
	}
	recorded := func(what string) {
		t.Helper()
		until(t, what, func() bool {
			s := d.usage("vm").Total
			return s.GPUSeconds == 0.03 && s.UnaccountedSeconds > v.UnaccountedSeconds-1e-5 && s.UnaccountedSeconds <= v.UnaccountedSeconds
		})
	}
	recorded("in the record")
	d.service.save(d.guest("a"))
	page = d.pageOf("a")
	d.stop()
	scribble(t, page, func(p *ipc.ControlPage) { p.Context(ipc.MaxContexts - 1).Free() })
	d = startDaemon(t, dir)
	if again := d.vm("a"); again.UnaccountedSeconds != v.UnaccountedSeconds {
		t.Errorf("after another restart %v s are unaccounted for, before %v s", again.UnaccountedSeconds, v.UnaccountedSeconds)
	}
	recorded("once")
}

// age has a daemon that has ended be as much longer ago: in what it saved of its guests, and in when
// it was last alive.
func (d *daemon) age(by time.Duration) {
	d.t.Helper()
	dir := d.config.RunDir
	guests, err := filepath.Glob(filepath.Join(dir, "vms", "*"))
	if err != nil || len(guests) == 0 {
		d.t.Fatalf("guests in %s: %v, %v", dir, guests, err)
	}
	for _, g := range guests {
		k, err := readState(g)
		if err != nil || k == nil {
			d.t.Fatalf("%s: %v, %v", g, k, err)
		}
		k.At -= by
		if err := k.write(d.files, g); err != nil {
			d.t.Fatal(err)
		}
	}
	path := filepath.Join(dir, aliveFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return // it did not live for a heartbeat
	}
	if err != nil {
		d.t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)-uint64(by))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// dup returns another descriptor of an open file.
func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}
