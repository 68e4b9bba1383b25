package agent_test

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
)

// as calls f with the effective rights of a user.
func as(t *testing.T, uid int, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root is several users")
	}
	set := func(uid int) {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			t.Error(errno)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		set(uid)
		f()
		set(0)
	}()
	<-done
}

// TestUsersAreLimited checks that the programs of one user get no more together than they may, that
// others still get theirs, and that what a program gives back can be had again.
func TestUsersAreLimited(t *testing.T) {
	g := start(t, kernels(0), agent.Options{PerUser: allot.Limits{Programs: 2, Channels: 5}}, address)
	check(t, errors.Join(os.Chmod(g.root, 0o755), os.Chmod(g.socket, 0o666)))
	dial := func(uid, channels int) (bus *driver.AgentBus, err error) {
		as(t, uid, func() {
			bus, err = driver.DialAgent(t.Context(), driver.AgentOptions{Socket: g.socket, Ask: allot.Ask{Channels: channels, SharedBytes: 256 << 10}})
		})
		return bus, err
	}
	limited := func(uid, channels int) {
		t.Helper()
		bus, err := dial(uid, channels)
		if err == nil || !strings.Contains(err.Error(), allot.ErrUserLimit.Error()) {
			t.Errorf("user %d asks for %d channels: %v", uid, channels, err)
		}
		if err == nil {
			check(t, bus.Close())
		}
	}
	first, err := dial(1000, 3)
	check(t, err)
	limited(1000, 3)
	second, err := dial(1000, 1)
	check(t, err)
	limited(1000, 1) // a third program
	other, err := dial(1001, 2)
	check(t, err)
	check(t, first.Close())
	g.settled(t, 2)
	again, err := dial(1000, 2)
	check(t, err)
	check(t, errors.Join(second.Close(), other.Close(), again.Close()))
	g.settled(t, 0)
	root, err := driver.DialAgent(t.Context(), driver.AgentOptions{Socket: g.socket, Ask: allot.Ask{Channels: 8}})
	check(t, err)
	check(t, root.Close())
}

// TestMissedFunctions checks that calls of functions that are not built are counted for all programs
// together, when a program says so and when it ends, and that nonsense is not counted.
func TestMissedFunctions(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	missing := func() []allot.Missing {
		t.Helper()
		conn, err := allot.Dial(g.socket)
		check(t, err)
		defer conn.Close()
		r, _, err := conn.Question(allot.Request{Op: allot.OpMissing}, time.Minute)
		check(t, err)
		for i := range r.Missing {
			m := &r.Missing[i]
			if m.At.IsZero() || m.Last == "" {
				t.Errorf("%+v", *m)
			}
			m.At, m.Last = time.Time{}, ""
		}
		return r.Missing
	}
	if got := missing(); len(got) != 0 {
		t.Errorf("at first %+v", got)
	}
	a, _ := g.dial(t, allot.Ask{Channels: 2, SharedBytes: 256 << 10})
	b, _ := g.dial(t, allot.Ask{Channels: 2, SharedBytes: 256 << 10})
	var calls atomic.Pointer[map[string]uint64] // the program also reports by itself, every 2 s
	calls.Store(&map[string]uint64{"cuGraphCreate": 2, "cuArray3DCreate_v2": 1, "": 7, "main": 7, "cu": 7, "cu$(reboot)": 7, "cu" + strings.Repeat("x", 1000): 7})
	a.ReportMissed(func() map[string]uint64 { return *calls.Load() })
	a.FlushMissed()
	a.FlushMissed() // nothing new
	b.ReportMissed(func() map[string]uint64 { return map[string]uint64{"cuGraphCreate": 3} })
	check(t, b.Close())
	calls.Store(&map[string]uint64{"cuGraphCreate": 4, "cuArray3DCreate_v2": 1})
	a.FlushMissed()
	want := []allot.Missing{{Function: "cuGraphCreate", Calls: 7, Programs: 2}, {Function: "cuArray3DCreate_v2", Calls: 1, Programs: 1}}
	if diff := cmp.Diff(want, missing()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	check(t, a.Close())
}

// TestStatusOfPrograms checks that a program's name is told, and how much of its part it uses.
func TestStatusOfPrograms(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	bus, dev := g.dial(t, allot.Ask{Contexts: 2, Channels: 4})
	gpu, err := dev.NewContext(t.Context(), driver.ContextOptions{})
	check(t, err)
	_, err = gpu.NewChannel(t.Context(), driver.ChannelOptions{})
	check(t, err)
	at := g.Devices()[0].Tenants
	comm, err := os.ReadFile("/proc/self/comm")
	check(t, err)
	if len(at) != 1 || at[0].Program != strings.TrimSpace(string(comm)) || at[0].Contexts != 1 || at[0].Channels != 2 ||
		!slices.Equal(at[0].Allotment.Channels, bus.Allotment().Channels) {
		t.Errorf("programs %+v", at)
	}
	check(t, dev.Close())
}

// TestConnectionsPerUser checks that the programs of one user can't take all connections, and those of
// all users not root's.
func TestConnectionsPerUser(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	check(t, errors.Join(os.Chmod(g.root, 0o755), os.Chmod(g.socket, 0o666)))
	// ask has the agent answer, by a connection that stays open.
	ask := func(uid int) (c allot.Conn, err error) {
		as(t, uid, func() {
			if c, err = allot.Dial(g.socket); err == nil {
				_, _, err = c.Question(allot.Request{Op: allot.OpMissing}, time.Minute)
			}
		})
		return c, err
	}
	const most, more = 64, 256
	fill := func(uid int) {
		t.Helper()
		n := 0
		for ; n < more; n++ {
			c, err := ask(uid)
			if err != nil {
				break
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		if n > most || n == 0 {
			t.Errorf("user %d has %d connections, want at most %d", uid, n, most)
		}
	}
	answered := func(uid int) {
		t.Helper()
		c, err := ask(uid)
		if err != nil {
			t.Fatalf("user %d beside others that take all they can: %v", uid, err)
		}
		check(t, c.Close())
	}
	fill(1000)
	fill(1001)
	fill(1002)
	answered(1003)
	fill(1003)
	answered(0)
}
