package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"vgpud/gpu"
	"vgpud/gpu/nvidia"
)

// TestListsGPUsOnceForAll: GPUs that are opened at the same time have one process list them, and one
// that is opened later has another.
func TestListsGPUsOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists, goOn := 0, make(chan struct{})
		want := []nvidia.Info{{Properties: gpu.Properties{Name: "H100"}}, {Properties: gpu.Properties{Name: "L4"}}}
		l := &lister{list: func(context.Context) ([]nvidia.Info, error) {
			lists++
			<-goOn
			return want, nil
		}}
		for range 8 {
			go func() {
				got, err := l.gpus(t.Context())
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("%v (-want +got):\n%s", err, diff)
				}
			}()
		}
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		if lists != 1 {
			t.Errorf("%d processes have listed the GPUs for 8 that were opened at once", lists)
		}
		if _, err := l.gpus(t.Context()); err != nil || lists != 2 {
			t.Errorf("one opened later was answered by list %d (%v), want 2", lists, err)
		}
	})
}
