package cuda

import (
	"slices"
	"testing"
)

// TestLanes checks which streams the nodes of graphs get.
func TestLanes(t *testing.T) {
	for name, c := range map[string]struct {
		deps  [][]int // of each node, in order
		lanes []int
		count int
	}{
		"empty":           {nil, nil, 0},
		"chain":           {[][]int{{}, {0}, {1}}, []int{0, 0, 0}, 1},
		"two roots":       {[][]int{{}, {}, {0, 1}}, []int{0, 1, 0}, 2},
		"fork and join":   {[][]int{{}, {0}, {0}, {1, 2}, {3}, {3}}, []int{0, 0, 1, 0, 0, 1}, 2},
		"second goes on":  {[][]int{{}, {}, {1}, {0}}, []int{0, 1, 1, 0}, 2},
		"more than there": {[][]int{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}, []int{0, 1, 2, 3, 4, 5, 6, 7, 1, 2}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			var d Driver
			g := &graph{}
			for _, deps := range c.deps {
				var of []*node
				for _, i := range deps {
					of = append(of, g.nodes[i])
				}
				if _, r := g.add(&d, emptyNode{}, of); r != Success {
					t.Fatal(r)
				}
			}
			count := setLanes(g.nodes)
			var lanes []int
			for _, n := range g.nodes {
				lanes = append(lanes, n.lane)
			}
			if count != c.count || !slices.Equal(lanes, c.lanes) {
				t.Errorf("%d lanes, %v; want %d, %v", count, lanes, c.count, c.lanes)
			}
		})
	}
}
