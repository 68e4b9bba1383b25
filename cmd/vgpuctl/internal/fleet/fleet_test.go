package fleet

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/fairshare/quota"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
)

const uuid = "22222222-2222-4222-8222-222222222222"

func day(hard, used time.Duration) *budget.Status {
	return &budget.Status{Budget: quota.Budget{Period: quota.Day, Hard: hard}, Used: used}
}

// two are two hosts that answer and one that does not.
var two = []Answer{
	{Host: "b", GPUs: []api.GPU{{Name: "gpu0", Healthy: true, BusyRatio: 0.5, MemoryBytes: 4 << 30}, {Name: "gpu1", MemoryBytes: 4 << 30}}, VMs: []api.VM{
		{Name: "i1", GPU: "gpu0", Project: "blue", Weight: 60, Guarantee: 0.6, BusyRatio: 0.25, MemoryLimitBytes: 1 << 30, Engine: "nova", Budget: day(time.Hour, time.Minute)},
		{Name: "i2", GPU: "gpu0", Weight: 70, BusyRatio: 0.25, MemoryLimitBytes: 2 << 30},
	}},
	{Host: "c", Err: errors.New("no route")},
	{Host: "a", GPUs: []api.GPU{{Name: "gpu0", Healthy: true, Cordoned: true}}, VMs: []api.VM{
		{Name: "i3", GPU: "gpu0", Project: "blue", Weight: 1, Guarantee: 0.25, Budget: day(2*time.Hour, time.Hour)},
	}},
}

func TestHosts(t *testing.T) {
	want := []Host{
		{Name: "a", GPUs: 1, Closed: 1, VMs: 1, Shares: 100, GivenShares: 25},
		{Name: "b", GPUs: 2, Sick: 1, VMs: 2, Shares: 200, GivenShares: 100, UsedShares: 50, MemoryBytes: 8 << 30, GivenMemoryBytes: 3 << 30},
		{Name: "c", Problem: "no route"},
	}
	if diff := cmp.Diff(want, Hosts(two)); diff != "" {
		t.Errorf("Hosts (-want +got):\n%s", diff)
	}
}

func TestProjects(t *testing.T) {
	want := []Project{
		{Hosts: 1, VMs: 1, GivenShares: 70, UsedShares: 25, GivenMemoryBytes: 2 << 30},
		{Name: "blue", Hosts: 2, VMs: 2, GivenShares: 85, UsedShares: 25, GivenMemoryBytes: 1 << 30, Budgets: []Budget{{"day", 3 * time.Hour, 61 * time.Minute}}},
	}
	got := Projects(two)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Projects (-want +got):\n%s", diff)
	}
	if s := got[1].Budgets[0].String(); s != "1h1m0s of 3h0m0s/day" {
		t.Errorf("the budget is shown as %s", s)
	}
}

// TestUsage: an instance that moved is one row, and guests and GPUs that only have the same name are
// not.
func TestUsage(t *testing.T) {
	at := func(h int) time.Time { return time.Date(2026, 11, 29, h, 0, 0, 0, time.UTC) }
	joules := 2.0
	hosts := map[string]api.Usage{
		"a": {From: at(1), To: at(5), By: "vm", Total: api.UsageSums{GPUSeconds: 4}, Rows: []api.UsageRow{
			{VM: "i1", Domain: "d", DomainUUID: uuid, UsageSums: api.UsageSums{GPUSeconds: 1, Kernels: 2, EnergyJoules: &joules}},
			{VM: "web", UsageSums: api.UsageSums{GPUSeconds: 3}},
		}},
		"b": {From: at(0), To: at(4), By: "vm", Total: api.UsageSums{GPUSeconds: 30}, Rows: []api.UsageRow{
			{VM: "i1", Domain: "d", DomainUUID: uuid, UsageSums: api.UsageSums{GPUSeconds: 10, Kernels: 20}},
			{VM: "web", UsageSums: api.UsageSums{GPUSeconds: 20}},
		}},
	}
	want := api.Usage{From: at(0), To: at(5), By: "vm", Total: api.UsageSums{GPUSeconds: 34}, Rows: []api.UsageRow{
		{VM: "a/web", UsageSums: api.UsageSums{GPUSeconds: 3}},
		{VM: "b/web", UsageSums: api.UsageSums{GPUSeconds: 20}},
		{VM: "i1", Domain: "d", DomainUUID: uuid, UsageSums: api.UsageSums{GPUSeconds: 11, Kernels: 22, EnergyJoules: &joules}},
	}}
	if diff := cmp.Diff(want, Usage(hosts)); diff != "" {
		t.Errorf("Usage (-want +got):\n%s", diff)
	}
}

// TestUsageAddsUp: nothing is lost or counted twice, whatever the rows stand for.
func TestUsageAddsUp(t *testing.T) {
	row := rapid.Custom(func(t *rapid.T) api.UsageRow {
		name := rapid.SampledFrom([]string{"", "a", "b"})
		return api.UsageRow{
			Day: name.Draw(t, "day"), VM: name.Draw(t, "vm"), Project: name.Draw(t, "project"), GPU: name.Draw(t, "gpu"),
			DomainUUID: rapid.SampledFrom([]string{"", uuid}).Draw(t, "uuid"), UsageSums: api.UsageSums{Kernels: uint64(rapid.IntRange(0, 9).Draw(t, "kernels"))},
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		hosts := make(map[string]api.Usage)
		var want uint64
		for _, name := range []string{"h1", "h2"} {
			var u api.Usage
			u.Rows = rapid.SliceOfN(row, 0, 6).Draw(t, name)
			for _, r := range u.Rows {
				u.Total.Kernels += r.Kernels
			}
			want += u.Total.Kernels
			hosts[name] = u
		}
		u := Usage(hosts)
		var got uint64
		seen := make(map[api.UsageRow]bool)
		for _, r := range u.Rows {
			got += r.Kernels
			r.UsageSums = api.UsageSums{}
			if seen[r] {
				t.Fatalf("two rows for %+v", r)
			}
			seen[r] = true
		}
		if got != want || u.Total.Kernels != want {
			t.Fatalf("rows have %d, the total %d, want %d", got, u.Total.Kernels, want)
		}
	})
}
