package tasks

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/preempt/tune/cache"
)

// TestRequest: a known run's peak is asked for, never less than what is recorded, and all of the
// memory where nothing is known.
func TestRequest(t *testing.T) {
	r := newRecord()
	r.mustAlloc(t, 1<<20)
	first := driver.Task{Blocks: 7, Threads: 64}
	for name, c := range map[string]struct {
		known cache.Peak
		want  *driver.Task
	}{
		"nothing is known":      {cache.Peak{}, nil},
		"it had all":            {cache.Peak{MemoryBytes: r.o.Limit, Blocks: 9, Threads: 9}, nil},
		"it had more":           {cache.Peak{MemoryBytes: 5 << 20, Blocks: 9, Threads: 32}, &driver.Task{MemoryBytes: 5 << 20, Blocks: 9, Threads: 64}},
		"it had less":           {cache.Peak{MemoryBytes: 5, Blocks: 3, Threads: 128}, &driver.Task{MemoryBytes: 1 << 20, Blocks: 7, Threads: 128}},
		"more than a block has": {cache.Peak{MemoryBytes: 5 << 20, Blocks: 9, Threads: 1 << 31}, &driver.Task{MemoryBytes: 5 << 20, Blocks: 9, Threads: 1024}},
		"its launches are not":  {cache.Peak{MemoryBytes: 5}, &driver.Task{MemoryBytes: 1 << 20, Blocks: 7, Threads: 64}},
	} {
		if diff := cmp.Diff(c.want, Request(r, c.known, first)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
