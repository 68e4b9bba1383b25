package corpus

import "math/rand/v2"

// bfs is a breadth-first search, a launch a level: divergence by data, benign races.
var bfs = Kernel{
	Name: "bfs",
	build: func(size Size, rng *rand.Rand) *Case {
		nodes := choose(size, 500, 8_000, 90_000)
		offsets := make([]int32, nodes+1)
		var edges []int32
		for v := range nodes {
			// A chain of short edges makes the graph deep and random edges make it wide. Every
			// fiftieth node has no edge to the next.
			for range rng.IntN(5) {
				edges = append(edges, rng.Int32N(int32(nodes)))
			}
			if v%50 != 49 && v+1 < nodes {
				edges = append(edges, int32(v+1))
			}
			offsets[v+1] = int32(len(edges))
		}
		levels := bfsLevels(offsets, edges)
		deepest := int32(0)
		for _, l := range levels {
			deepest = max(deepest, l)
		}
		start, changed := make([]int32, nodes), make([]int32, deepest+1)
		for v := range start {
			start[v] = -1
		}
		start[0] = 0
		c := &Case{}
		for level := range int(deepest) + 1 {
			if level < int(deepest) {
				changed[level] = 1
			}
			c.Steps = append(c.Steps, launch("bfs_level", blocksFor(nodes, 256), 256,
				ptr("offsets"), ptr("edges"), ptr("levels"), ptr("changed"), i32(level), i32(nodes)))
		}
		c.Buffers = []Buffer{
			input("offsets", offsets), input("edges", edges), update("levels", start, levels),
			update("changed", make([]int32, deepest+1), changed),
		}
		return c
	},
}

// bfsLevels returns each node's distance from node 0, or −1 if it can't be reached.
func bfsLevels(offsets, edges []int32) []int32 {
	levels := make([]int32, len(offsets)-1)
	for v := range levels {
		levels[v] = -1
	}
	levels[0] = 0
	for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
		v := queue[0]
		for _, w := range edges[offsets[v]:offsets[v+1]] {
			if levels[w] < 0 {
				levels[w] = levels[v] + 1
				queue = append(queue, w)
			}
		}
	}
	return levels
}
