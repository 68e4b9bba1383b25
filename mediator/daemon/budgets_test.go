package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vgpud/fairshare/quota"
	"vgpud/mediator/api"
)

// TestBudgetOutlivesTheGuest tests that a guest's budget, and what was used of it, are known to the
// next daemon, and that what was used is known to the next guest of that name.
func TestBudgetOutlivesTheGuest(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	d.create("a")
	b := quota.Budget{Period: quota.Month, Soft: time.Hour, Hard: 2 * time.Hour, AtHard: quota.Throttle}
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Budget: &b}); err != nil {
		t.Fatal(err)
	}
	charge := func(total time.Duration) {
		d.t.Helper()
		g, err := d.service.guest("a")
		if err != nil {
			t.Fatal(err)
		}
		g.budget.Charge(quota.Measured{Charged: total}, 0)
	}
	want := func(used time.Duration, level quota.Level) {
		d.t.Helper()
		v := d.vm("a")
		if v.Budget == nil || v.Budget.Budget != b || v.Budget.Used != used || v.Budget.Level != level {
			t.Errorf("budget %+v, want %v used of %v", v.Budget, used, b)
		}
	}
	want(0, quota.Within)
	charge(90 * time.Minute)
	want(90*time.Minute, quota.OverSoft)
	d.stop()
	d = startDaemon(t, dir)
	want(90*time.Minute, quota.OverSoft)
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if v := d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, Budget: b}); v.Budget == nil || v.Budget.Used != 90*time.Minute {
		t.Errorf("the next guest has %+v", v.Budget)
	}
	charge(40 * time.Minute)
	want(130*time.Minute, quota.OverHard)
	none := quota.Budget{}
	if v, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Budget: &none}); err != nil || v.Budget != nil {
		t.Errorf("without a budget: %+v, %v", v.Budget, err)
	}
	bad := quota.Budget{Soft: 2, Hard: 1}
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Budget: &bad}); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a soft limit above the hard one: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, budgetsFile)); err != nil {
		t.Error(err)
	}
}

func TestBudgetsConfig(t *testing.T) {
	const gpus = "gpus: [{name: gpu0, socket: /tmp/gpu}]\n"
	c, err := ParseConfig([]byte(gpus + "budgets: {time_zone: Europe/Berlin, owners: {research: '100h/month,soft=80h'}}"))
	if err != nil {
		t.Fatal(err)
	}
	owners, err := c.Budgets.owners()
	if want := (quota.Budget{Period: quota.Month, Hard: 100 * time.Hour, Soft: 80 * time.Hour}); err != nil || owners["research"] != want {
		t.Errorf("%+v, %v", owners, err)
	}
	for _, bad := range []string{"{time_zone: Atlantis}", "{time_zone: Local}", "{owners: {a: 10h}}", "{owners: {'': 10h/day}}", "{owners: {a: '1h/day,soft=2h'}}"} {
		if _, err := ParseConfig([]byte(gpus + "budgets: " + bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
