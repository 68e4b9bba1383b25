package tenant

import (
	"bytes"
	"context"
	"testing"
)

// memoryGPU is memory, and nothing that runs.
type memoryGPU struct {
	machine
	mem []byte
}

func (m *memoryGPU) copyIn(_ context.Context, dst uint64, src []byte) error {
	copy(m.mem[dst:], src)
	return nil
}

func (m *memoryGPU) copyOut(_ context.Context, dst []byte, src uint64) error {
	copy(dst, m.mem[src:])
	return nil
}

// TestResultsAreMadeAnew has a launch that does nothing, behind one that did all: what the first
// left is not taken for the second's.
func TestResultsAreMadeAnew(t *testing.T) {
	g := &memoryGPU{mem: bytes.Repeat([]byte{7}, 64)}
	j := &job{results: []result{{8, 16}, {32, 4}}, outputs: []result{{40, 8}}}
	tn := &tenant{machine: g, jobs: []*job{j}}
	which := 0
	sum := func() uint64 {
		t.Helper()
		a, err := tn.do(t.Context(), &Request{Sum: &which})
		if err != nil {
			t.Fatal(err)
		}
		return a.Sum
	}
	done := sum()
	if sum() != done {
		t.Error("the same results have another sum")
	}
	if _, err := tn.do(t.Context(), &Request{Clear: &which}); err != nil {
		t.Fatal(err)
	}
	if sum() == done {
		t.Error("what the launch before left is taken for results")
	}
	want := bytes.Repeat([]byte{7}, 64)
	for _, r := range [][2]int{{8, 24}, {32, 36}, {40, 48}} {
		clear(want[r[0]:r[1]])
	}
	if !bytes.Equal(g.mem, want) {
		t.Errorf("cleared, the memory is %v, want %v", g.mem, want)
	}
	other := 1
	if _, err := tn.do(t.Context(), &Request{Clear: &other}); err == nil {
		t.Error("results of a job that there is not are cleared")
	}
}
