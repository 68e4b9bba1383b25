package demo

import "strings"

// members are the demo's guests. The heavier a guest's weight the shorter its
// kernels, so that without a policy the order is the wrong way round (LoGA
// figure 2).
func members() []*member {
	return []*member{
		{weight: 1, GuestPlan: GuestPlan{Name: "long", Workers: 6, Channels: 6, Work: []Work{
			{"matmul", "small", 2}, {"spmv", "small", 1}, {"triad", "small", 2},
		}}},
		{weight: 2, GuestPlan: GuestPlan{Name: "medium", Workers: 6, Channels: 6, Work: []Work{
			{"reduce", "small", 2}, {"warp", "small", 2}, {"scan", "small", 1},
		}}},
		{weight: 4, GuestPlan: GuestPlan{Name: "short", Workers: 6, Channels: 6, Work: []Work{
			{"vecadd", "trivial", 8}, {"nnlayer", "trivial", 4}, {"blackscholes", "trivial", 8},
		}}},
	}
}

// describe names what a guest works at.
func (m *member) describe() string {
	var names []string
	for _, w := range m.Work {
		names = append(names, w.Kernel+"/"+w.Size)
	}
	return strings.Join(names, ", ")
}
