package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/api"
)

func TestBetween(t *testing.T) {
	before := []api.VM{
		{Name: "slow", GPU: "g", GPUSeconds: 10, SuspendedSeconds: 1, Kernels: 100, Preemption: api.Preemption{Evictions: 10}},
		{Name: "fast", GPU: "g", GPUSeconds: 20, Kernels: 100},
		{Name: "gone", GPU: "g", GPUSeconds: 30},
		{Name: "reborn", GPU: "g", GPUSeconds: 40, Kernels: 9},
	}
	now := []api.VM{
		{Name: "slow", GPU: "g", GPUSeconds: 10.5, SuspendedSeconds: 9, Kernels: 104, Attached: true, Suspended: true, Weight: 1, Entitled: 0.25,
			Preemption: api.Preemption{Evictions: 15, Launches: api.Launches{Waiting: 3}}},
		{Name: "fast", GPU: "g", MemoryUsedBytes: 5, GPUSeconds: 21.5, Kernels: 300, Attached: true, Active: true, Weight: 3, Entitled: 0.75},
		{Name: "reborn", GPU: "g", GPUSeconds: 0, Kernels: 1, Attached: true},
		{Name: "new", GPU: "g", GPUSeconds: 50, Kernels: 7},
		{Name: "alone", GPU: "h", GPUSeconds: 1},
	}
	want := []usage{
		{Name: "fast", GPU: "g", Weight: 3, Memory: 5, State: "active", Busy: 0.75, Share: 0.75, Entitled: 0.75, Kernels: 100},
		{Name: "slow", GPU: "g", Weight: 1, State: "suspended", Busy: 0.25, Share: 0.25, Entitled: 0.25, Suspended: 1, Kernels: 2, Evictions: 2.5, Waiting: 3},
		{Name: "reborn", GPU: "g", State: "idle"},
		{Name: "new", GPU: "g", State: "detached"},
		{Name: "alone", GPU: "h", State: "detached"},
	}
	if diff := cmp.Diff(want, between(before, now, 2*time.Second)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
