package daemon

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"vgpud/internal/proctest"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
)

// TestGuestsTakeNoThreads: with a policy about guests none has a thread of the daemon, so that a
// thousand guests don't take a thousand; and each has three goroutines at most: for its process's end,
// output and messages.
func TestGuestsTakeNoThreads(t *testing.T) {
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	d := startDaemonConfigured(t, runDir(t), func(c *Config) { c.GPUs[0].Policy = "dfq" })
	d.prestarted()
	const guests = 24
	before, goroutines := threads(), runtime.NumGoroutine()
	for i := range guests {
		d.createVM(api.VMSpec{Name: fmt.Sprint("g", i), BAR2Bytes: 4 << 20})
	}
	d.prestarted()
	proctest.Until(t, "they have three goroutines each, and API calls a few for a while", func() bool {
		return runtime.NumGoroutine()-goroutines < 4*guests
	})
	if took := threads() - before; took >= guests/2 {
		t.Errorf("%d guests took %d threads", guests, took)
	}
}

// TestKillForgotten: a guest that has been forgotten while it was waited for is not an error.
func TestKillForgotten(t *testing.T) {
	d := startDaemon(t, runDir(t))
	d.create("a")
	g := d.guest("a")
	if err := d.client.DeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	<-g.gone
	if err := d.service.killGuest(g); err != nil {
		t.Errorf("kill a forgotten guest: %v", err)
	}
}

// TestDeletedWithoutWarning: that a guest's process is killed when it has been told to end, and has
// let go of the daemon, is nothing that an operator should be warned of.
func TestDeletedWithoutWarning(t *testing.T) {
	d := startDaemon(t, runDir(t))
	pid := d.create("a").PID
	d.service.mu.RLock()
	process := d.service.processes[pid]
	d.service.mu.RUnlock()
	if err := d.client.DeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	<-process.ended
	d.stop() // which waits until all was logged
	all, _, _ := d.service.events.Since("")
	for _, e := range all {
		if e.Kind == events.GuestProcess {
			t.Errorf("deleting a guest logs %+v", e)
		}
	}
}
