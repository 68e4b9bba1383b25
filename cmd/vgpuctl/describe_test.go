package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare/quota"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
)

// TestDescribeShowsAll: each field of a guest shows in its description, but for those that others say.
func TestDescribeShowsAll(t *testing.T) {
	elsewhere := map[string]string{
		"Active":       "the state",
		"Suspended":    "the state",
		"Sanction":     "the reason for which the guest is held back, and the levels of its budgets",
		"Share":        "BusyRatio, which is of the same whole as Entitled",
		"Groups":       "the driver's own numbers, for programs",
		"EventKernels": "their number, and vgpuctl get events",
	}
	plain := strings.Join(describeVM(new(api.VM)), "\n")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[api.VM]()) {
		var v api.VM
		fill(reflect.ValueOf(&v).Elem().FieldByIndex(f.Index))
		if shows := strings.Join(describeVM(&v), "\n") != plain; !shows && elsewhere[f.Name] == "" {
			t.Errorf("%s does not show", f.Name)
		}
	}
}

// fill gives a value, and what is in it, something other than zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint64:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	default:
		panic("a field of type " + v.Type().String())
	}
}

// TestDescribeBudgets: a guest's budget and its owner's are described, with what is used of them, and
// so is what a guest that floats has on each GPU.
func TestDescribeBudgets(t *testing.T) {
	ends := time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)
	own, err := quota.Parse("10h/day,soft=5h")
	if err != nil {
		t.Fatal(err)
	}
	owners, err := quota.Parse("100h/month")
	if err != nil {
		t.Fatal(err)
	}
	v := api.VM{
		Owner:       "alice",
		Project:     "research",
		Float:       true,
		Budget:      &budget.Status{Budget: own, Used: 6 * time.Hour, Level: quota.OverSoft, Ends: ends},
		OwnerBudget: &budget.Status{Budget: owners, Used: time.Minute, Ends: ends.AddDate(0, 0, 30)},
		OnGPUs: []api.OnGPU{
			{GPU: "gpu0", Contexts: 1, MemoryUsedBytes: 300 << 20, GPUSeconds: 12.5, BusyRatio: 0.5},
			{GPU: "gpu1"},
		},
		Errors:       3,
		ErrorReasons: api.ErrorReasons{Memory: 1, TimeLimit: 2},
		Events:       7,
	}
	got := describeVM(&v)
	got = slices.DeleteFunc(got, func(line string) bool {
		return !slices.ContainsFunc([]string{"Owner", "Project", "  On ", "Budget", "Failed", "Event"}, func(part string) bool { return strings.Contains(line, part) })
	})
	want := []string{
		"Owner:                 alice",
		"Project:               research",
		"  Budget:              10h/day,soft=5h; 6h0m0s used, past the soft limit, until 2026-12-02 00:00:00 UTC",
		"  Owner's budget:      100h/month; 1m0s used, until 2027-01-01 00:00:00 UTC",
		"  On gpu0:             12.5s, 50.0% lately; 1 context with 300MiB",
		"  On gpu1:             0s, 0.0% lately; 0 contexts with 0B",
		"  Failed, by reason:   1 memory, 2 time-limit",
		"  Event kernels:       0; 7 events, 0 dropped, 0 stray",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
