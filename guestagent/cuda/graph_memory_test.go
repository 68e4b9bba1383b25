package cuda

import "testing"

// TestGraphMemoryStays: other threads' synchronizations give memory of graphs back only when nobody
// can use it any more.
func TestGraphMemoryStays(t *testing.T) {
	const base = 1 << 20
	d := &Driver{}
	m, x := &d.graphMemory, &Context{d: d}
	check := func(when string, want bool) {
		t.Helper()
		m.unused = true
		m.trim(d)
		if there := m.find(base) != nil; there != want {
			t.Errorf("%s: the memory is there is %t", when, there)
		}
	}
	// made returns memory that a launch has allocated and whose graph is gone.
	made := func() *graphBlock {
		b := m.add(x, base, 64)
		check("before the node is in a graph", true)
		m.setLive(b, true)
		m.release(d, b)
		return b
	}
	b, held := made(), &hostCall{done: make(chan struct{})}
	if !m.free(b, func() { b.freedBehind([]point{{call: held}}) }) {
		t.Error("memory in use can't be freed")
	}
	check("freed behind what is not done", true)
	if m.free(b, func() { t.Error("memory is freed twice") }) {
		t.Error("memory that is not in use can be freed")
	}
	close(held.done)
	check("freed behind what is done", false)

	b, held = made(), &hostCall{done: make(chan struct{})}
	n := &freeNode{b}
	if r := m.launch(&graphExec{g: &graph{sorted: []*node{{op: n}}}}, x); r != Success {
		t.Fatal(r)
	}
	check("before a graph's node has freed it", true)
	n.run(&Call{d: d}, &stream{x: x, ch: &channel{x: x}, waits: []point{{call: held}}})
	check("freed behind what is not done", true)
	close(held.done)
	check("freed by a graph's node", false)
	if m.used.now != 0 || m.reserved.now != 0 {
		t.Errorf("%d bytes in use, %d reserved", m.used.now, m.reserved.now)
	}
}
