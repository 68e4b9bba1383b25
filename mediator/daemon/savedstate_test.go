package daemon

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
)

// scribble writes on the page of a guest whose daemon is gone, as its executors may.
func scribble(t *testing.T, page *os.File, f func(*ipc.ControlPage)) {
	t.Helper()
	p, err := ipc.OpenControlPage(page)
	if err != nil {
		t.Fatal(err)
	}
	f(p)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// pageOf returns a descriptor of a guest's page that stays open when the daemon ends.
func (d *daemon) pageOf(name string) *os.File {
	d.t.Helper()
	d.service.mu.RLock()
	defer d.service.mu.RUnlock()
	// It is opened by its name in /proc, as a descriptor of its own.
	f, err := os.OpenFile(filepath.Join("/proc/self/fd", strconv.FormatUint(uint64(d.service.guests[name].page.File().Fd()), 10)), os.O_RDWR, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	return f
}

// TestPageIsNoAuthority: what a guest's processes write on its page while there is no daemon does
// not change what the guest is granted, and changes what it was charged only within the time that
// has passed.
func TestPageIsNoAuthority(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	began := time.Now()
	d.create("a")
	weight, limit, ceiling := 2.0, 0.25, 1
	u := api.VMUpdate{Weight: &weight, Cap: &limit, PriorityCeiling: &ceiling}
	if _, err := d.client.UpdateVM(t.Context(), "a", u); err != nil {
		t.Fatal(err)
	}
	d.charge("a", time.Hour)
	for _, bill := range []ipc.Bill{
		{},
		{Used: math.MinInt64, Suspended: math.MinInt64, Charged: -1},
		{Used: math.MaxInt64, Suspended: math.MaxInt64, Suspensions: math.MaxUint64, Caused: math.MaxUint64, Charged: math.MaxInt64},
	} {
		before := d.vm("a")
		page := d.pageOf("a")
		d.stop()
		scribble(t, page, func(p *ipc.ControlPage) {
			p.SetTerms(ipc.Terms{Weight: 1000, Guarantee: 1, PriorityCeiling: 99})
			p.SetBill(bill)
		})
		d = startDaemon(t, dir)
		after, passed := d.vm("a"), time.Since(began).Seconds()
		if after.Weight != weight || after.Cap != limit || after.Guarantee != 0 || after.PriorityCeiling != ceiling {
			t.Errorf("granted %+v", after)
		}
		if more := after.GPUSeconds - before.GPUSeconds; more < 0 || more > passed {
			t.Errorf("charged %v s more by a page that says %+v", more, bill)
		}
		if after.Suspensions > before.Suspensions+uint64(1000*passed) || after.SuspendedSeconds > before.SuspendedSeconds+passed {
			t.Errorf("suspended %d times, %v s", after.Suspensions, after.SuspendedSeconds)
		}
	}
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// TestBillOfAKilledDaemon: what was charged since the state was saved counts as far as there was
// time for it.
func TestBillOfAKilledDaemon(t *testing.T) {
	k := savedState{Bill: ipc.Bill{Used: time.Minute, Suspended: time.Second, Suspensions: 10, Caused: 1, Charged: ms}, At: time.Hour}
	now := time.Hour + 2*time.Second
	for _, c := range []struct{ page, want ipc.Bill }{
		{ipc.Bill{}, k.Bill},
		{
			ipc.Bill{Used: 61 * time.Second, Suspended: 2 * time.Second, Suspensions: 20, Caused: 2, Charged: 2 * ms},
			ipc.Bill{Used: 61 * time.Second, Suspended: 2 * time.Second, Suspensions: 20, Caused: 2, Charged: 2 * ms},
		},
		{
			ipc.Bill{Used: math.MaxInt64, Suspended: math.MaxInt64, Suspensions: math.MaxUint64, Caused: math.MaxUint64, Charged: math.MaxInt64},
			ipc.Bill{Used: 62 * time.Second, Suspended: 3 * time.Second, Suspensions: 2010, Caused: 2001, Charged: 2*time.Second + ms},
		},
	} {
		if diff := cmp.Diff(c.want, k.limitBill(c.page, now)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.page, diff)
		}
	}
	// The clock of a host that was booted again starts again, and no guest of before is left.
	if got := k.limitBill(ipc.Bill{}, 0); got != k.Bill {
		t.Errorf("before it was saved: %+v", got)
	}
}

// TestUnreadableState: a guest whose saved state is unreadable, or names another process, is not
// adopted by what its process says. It is shown, and is adopted once the state is right.
func TestUnreadableState(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	v := d.create("a")
	path := filepath.Join(dir, "vms", "a", stateFile)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", `{"pid": 1, "terms": {"weight":`, `{"pid": 1, "terms": {}}`, `{"pid":1,"terms":{"weight":1}}`,
		`{"pid":1,"spec":{"name":"b"},"terms":{"weight":1}}`, strings.Replace(string(before), `"began":`, `"began":1`, 1),
	} {
		d.stop()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d = startDaemon(t, dir)
		if vms := d.service.VMs(); len(vms) != 1 || vms[0].Silent == "" || vms[0].Name != "a" {
			t.Errorf("adopted with the state %q: %+v", text, vms)
		}
	}
	d.stop()
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	d = startDaemon(t, dir)
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	processEnds(t, v.PID)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the state of a guest that is gone: %v", err)
	}
}

// TestStateTheNextDaemonReads: a state that the next daemon would refuse to read is not reported as
// saved.
func TestStateTheNextDaemonReads(t *testing.T) {
	dir := t.TempDir()
	k := savedState{PID: 1, Spec: ipc.Spec{Name: "a", Peer: &ipc.Peer{PIDFile: strings.Repeat("<", maxStateBytes/6)}}, Terms: api.Terms{Weight: 1}}
	if err := k.write(statefile.Files{}, dir); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("it is saved: %v", err)
	}
	k.Spec.Peer.PIDFile = k.Spec.Peer.PIDFile[:4095]
	if err := k.write(statefile.Files{}, dir); err != nil {
		t.Error(err)
	}
	if got, err := readState(dir); err != nil || got.Spec.Peer.PIDFile != k.Spec.Peer.PIDFile {
		t.Errorf("%+v, %v", got, err)
	}
}
