package daemon

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"vgpud/mediator/api"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/statefile"
)

// usage returns what was used in the last day.
func (d *daemon) usage(by string) api.Usage {
	d.t.Helper()
	u, err := d.client.Usage(d.t.Context(), api.UsageQuery{From: "1d", By: by})
	if err != nil {
		d.t.Fatal(err)
	}
	return u
}

// used waits until so much compute time was recorded in all. The daemon answers with what is at most
// a second old.
func (d *daemon) used(what string, want time.Duration) {
	d.t.Helper()
	var got api.Usage
	defer func() {
		if d.t.Failed() {
			d.t.Logf("%s: want %v, got %+v", what, want, got)
		}
	}()
	until(d.t, what, func() bool {
		got = d.usage("vm")
		return math.Abs(got.Total.GPUSeconds-want.Seconds()) < 1e-5
	})
}

// TestUsageOutlivesGuests checks that what a guest used is recorded when it has ended, by its own
// doing or not, and over restarts of the daemon.
func TestUsageOutlivesGuests(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, Owner: "alice", Project: "blue"})
	d.charge("a", 100*ms)
	d.used("of a guest that runs", 100*ms)
	d.charge("a", 50*ms)
	if err := d.client.DeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	d.used("of a guest that was deleted", 150*ms)

	v := d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, Owner: "bob"}) // another one of that name
	d.charge("a", 30*ms)
	if err := unix.Kill(v.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.used("of a guest that was killed", 180*ms)

	d.create("b")
	d.charge("b", 20*ms)
	d.stop() // it goes on
	d = startDaemon(t, dir)
	d.used("after a restart of the daemon", 200*ms)
	d.charge("b", 10*ms)
	d.used("of a guest that was adopted", 210*ms)

	var got []string
	for _, r := range d.usage("owner").Rows {
		got = append(got, r.Owner)
	}
	if diff := cmp.Diff([]string{"", "alice", "bob"}, got); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// TestUsageOfSilentGuests checks that what is saved of a guest that ended while no daemon ran is
// recorded, but nothing twice.
func TestUsageOfSilentGuests(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	v := d.create("a")
	d.charge("a", 100*ms)
	d.used("of a guest that runs", 100*ms)
	d.stop()
	if err := unix.Kill(v.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the guest's process has ended", func() bool { return ended(v.PID) })
	// A daemon that was killed has saved more than it recorded.
	guestDir := d.service.guestDir("a")
	saved, err := readState(guestDir)
	if err != nil {
		t.Fatal(err)
	}
	saved.Bill.Used += 50 * ms
	if err := saved.write(statefile.Files{}, guestDir); err != nil {
		t.Fatal(err)
	}
	d = startDaemon(t, dir)
	d.used("of a guest that ended without a daemon", 150*ms)
}

// TestUsageOwnerChanges checks that usage belongs to the owner at the time.
func TestUsageOwnerChanges(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, Owner: "alice"})
	d.charge("a", 100*ms)
	d.used("by the first owner", 100*ms)
	bob := "bob"
	if v, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Owner: &bob}); err != nil || v.Owner != bob {
		t.Fatalf("UpdateVM = %+v, %v", v, err)
	}
	evil := "evil\x1b[2J"
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Project: &evil}); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a project that can't be shown: %v", err)
	}
	d.charge("a", 10*ms)
	d.used("by both owners", 110*ms)
	d.stop()
	d = startDaemon(t, dir)
	if v := d.vm("a"); v.Owner != bob || v.Project != "" {
		t.Errorf("after a restart: owner %q, project %q", v.Owner, v.Project)
	}
	rows := d.usage("owner").Rows
	if len(rows) != 2 || rows[0].Owner != "alice" || rows[0].GPUSeconds != 0.1 || rows[1].GPUSeconds != 0.01 {
		t.Errorf("by owner: %+v", rows)
	}
}

// TestCorruptUsage checks that a corrupt record is said to be so, and that usage goes on.
func TestCorruptUsage(t *testing.T) {
	dir := runDir(t)
	path := filepath.Join(dir, "usage.sqlite")
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no database\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, dir)
	d.create("a")
	d.charge("a", 100*ms)
	d.used("in a new record", 100*ms)
	h, err := d.client.Health(t.Context())
	if err != nil || h.Healthy || len(h.UsageProblems) != 1 || !strings.Contains(strings.Join(h.Problems, "\n"), "usage record was corrupt") {
		t.Errorf("health: %+v, %v", h, err)
	}
	kept, err := filepath.Glob(path + ".corrupt-*")
	if err != nil || len(kept) != 1 {
		t.Errorf("kept: %v, %v", kept, err)
	}
}

func TestUsageMistakes(t *testing.T) {
	d := startDaemon(t, runDir(t))
	for want, q := range map[string]api.UsageQuery{
		`from "soon": want a date such as`: {From: "soon"},
		`to "2026-02-30": want a date`:     {To: "2026-02-30"},
		`by "week": want vm, domain`:       {By: "week"},
		"want from before to":              {From: "now", To: "7d"},
		"":                                 {By: "day"},
	} {
		_, err := d.client.Usage(t.Context(), q)
		if want == "" && err != nil || want != "" && (!errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", q, err, want)
		}
	}
	if _, err := d.client.UsageCosts(t.Context(), api.UsageQuery{Resolution: "week"}); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("costs by week: %v", err)
	}
}

func TestUsageConfig(t *testing.T) {
	var c UsageConfig
	if err := yaml.Unmarshal([]byte("{path: /var/lib/x.sqlite, interval: 5m, keep_intervals: 36h, keep_hours: 8w, keep_days: forever, max_bytes: 10000000}"), &c); err != nil {
		t.Fatal(err)
	}
	want := UsageConfig{"/var/lib/x.sqlite", 5 * time.Minute, KeepFor(36 * time.Hour), KeepFor(56 * 24 * time.Hour), -1, 10_000_000}
	if diff := cmp.Diff(want, c); diff != "" || c.check() != nil {
		t.Errorf("%v (-want +got):\n%s", c.check(), diff)
	}
	for text, want := range map[string]string{
		"{path: usage.sqlite}":  `path "usage.sqlite": want an absolute path`,
		"{interval: 7m}":        "interval 7m0s: want whole seconds that divide an hour",
		"{max_bytes: 1}":        "max_bytes 1: want",
		"{keep_days: 3 months}": `line 1: "3 months": want an age of at least 1h`,
		"{keep_hours: 10m}":     `line 1: "10m": want an age of at least 1h`,
	} {
		var c UsageConfig
		err := yaml.Unmarshal([]byte(text), &c)
		if err == nil {
			err = c.check()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	standard := Config{StateDir: "/var/lib/vgpud"}
	if got := standard.usagePath(); got != "/var/lib/vgpud/usage.sqlite" {
		t.Errorf("by default at %s", got)
	}
}

// TestDomainAccount checks that guests follow what their domain's metadata says of its owner, Nova's
// too.
func TestDomainAccount(t *testing.T) {
	const nova = `<domain type='kvm'><name>n</name><metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">` +
		`<nova:owner><nova:user uuid="u1">admin</nova:user><nova:project uuid="p1">demo</nova:project></nova:owner></nova:instance></metadata></domain>`
	for name, c := range map[string]struct {
		xml            string
		have           api.VM
		owner, project string
		changes        bool
	}{
		"Nova's":     {nova, api.VM{}, "u1", "p1", true},
		"the same":   {nova, api.VM{Owner: "u1", Project: "p1"}, "", "", false},
		"none named": {`<domain type='kvm'><name>n</name></domain>`, api.VM{Owner: "alice"}, "", "", false},
		"no XML":     {"", api.VM{Owner: "alice"}, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			seen := parseDomain(libvirt.Domain{Name: "n", Active: true, XML: c.xml})
			c.have.Name, c.have.Domain = "a", "n"
			all := seen.consequences([]member{{VM: c.have}}, false)
			if !c.changes {
				if len(all) != 0 {
					t.Errorf("changes: %+v", all)
				}
				return
			}
			if len(all) != 1 || *all[0].update.Owner != c.owner || *all[0].update.Project != c.project {
				t.Errorf("changes: %+v", all)
			}
		})
	}
}
