package main

import (
	"context"
	"fmt"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
)

// launches measures what a guest's way to the GPU adds to a launch, and what it takes
// of the bandwidth of copies: guest and native program by turns, in one run.
func launches(ctx context.Context, b *bench) error {
	native, err := b.native(ctx, "native")
	if err != nil {
		return err
	}
	guest, err := b.guest(ctx, tenant.Setup{Name: "guest"})
	if err != nil {
		return err
	}
	if err := b.launchAdded(ctx, native, guest); err != nil {
		return err
	}
	for _, d := range []struct {
		id, name string
		up       bool
	}{{"copy_up_ratio", "up", true}, {"copy_down_ratio", "down", false}} {
		if err := b.copyRatio(ctx, native, guest, d.id, d.up); err != nil {
			return fmt.Errorf("copies %s: %w", d.name, err)
		}
	}
	return nil
}

func (b *bench) launchAdded(ctx context.Context, native, guest *member) error {
	both := []*member{native, guest}
	jobs := make([]int, len(both))
	for i, m := range both {
		var err error
		if jobs[i], err = m.load(ctx, tenant.Job{Fixed: "empty"}); err != nil {
			return err
		}
	}
	n := pick(b, 20, 1000, 4000)
	var added []float64
	medians, tails := make([][]float64, 2), make([][]float64, 2)
	for range b.runs() {
		for i, m := range both {
			ran, err := m.run(ctx, tenant.Run{Job: jobs[i], Count: n})
			if err != nil {
				return err
			}
			us := figure.Micros(ran.Turnarounds[n/10:]) // the first find everybody asleep
			medians[i] = append(medians[i], figure.Median(us))
			tails[i] = append(tails[i], figure.Quantile(us, 0.99))
		}
		last := len(added)
		added = append(added, medians[1][last]-medians[0][last])
	}
	r := b.row("launch_added_us", added, fmt.Sprintf("%d launches of an empty kernel, each waited for, by a guest's process and by a native one; difference of the medians", n))
	r.Baseline["native_us_p50"], r.Baseline["guest_us_p50"] = figure.Median(medians[0]), figure.Median(medians[1])
	r.Baseline["native_us_p99"], r.Baseline["guest_us_p99"] = figure.Median(tails[0]), figure.Median(tails[1])
	b.add(r)
	return nil
}

// copyRatio compares copies of ordinary memory, which is what a program's memory is,
// and has native copies of memory that is registered with the GPU beside them.
func (b *bench) copyRatio(ctx context.Context, native, guest *member, id string, up bool) error {
	c := tenant.Copy{Bytes: pick(b, 1<<20, 256<<20, 1<<30), Times: pick(b, 1, 4, 6), Up: up}
	rate := func(m *member, c tenant.Copy) (float64, error) {
		a, err := m.ask(ctx, tenant.Request{Copy: &c})
		if err != nil {
			return 0, err
		}
		return float64(c.Bytes) / a.Seconds / 1e9, nil
	}
	var ratios, ofNative, ofGuest, ofPinned []float64
	for range b.runs() {
		n, err := rate(native, c)
		if err != nil {
			return err
		}
		g, err := rate(guest, c)
		if err != nil {
			return err
		}
		ratios, ofNative, ofGuest = append(ratios, g/n), append(ofNative, n), append(ofGuest, g)
		pinned := c
		pinned.Pinned = true
		if p, err := rate(native, pinned); err == nil {
			ofPinned = append(ofPinned, p)
		}
	}
	r := b.row(id, ratios, fmt.Sprintf("copies of %d MiB of ordinary memory, a guest's bandwidth over a native program's", c.Bytes>>20))
	r.Baseline["native_gb_per_s"], r.Baseline["guest_gb_per_s"] = figure.Median(ofNative), figure.Median(ofGuest)
	if len(ofPinned) > 0 {
		r.Baseline["native_pinned_gb_per_s"] = figure.Median(ofPinned)
		r.Baseline["guest_over_native_pinned"] = figure.Median(ofGuest) / figure.Median(ofPinned)
	}
	b.add(r)
	return nil
}

// detail is a row's table.
func detail(columns ...string) *report.Table { return &report.Table{Columns: columns} }
