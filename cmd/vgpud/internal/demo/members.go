package demo

import "strings"

// members are the demo's guests. The heavier a guest's weight the shorter its
// kernels, so that without a policy the order is the wrong way round (LoGA
// figure 2).
func members() []*member {
	return []*member{
		{weight: 1, GuestPlan: GuestPlan{Name: "long", Workers: 4, Channels: 2, Work: []Work{
			{"matmul", "large", 2}, {"nbody", "large", 2}, {"hotspot", "large", 1},
		}}},
		{weight: 2, GuestPlan: GuestPlan{Name: "medium", Workers: 4, Channels: 2, Work: []Work{
			{"stencil", "small", 4}, {"fft", "small", 4}, {"md5", "small", 4},
		}}},
		{weight: 4, GuestPlan: GuestPlan{Name: "short", Workers: 6, Channels: 2, Work: []Work{
			{"vecadd", "small", 16}, {"triad", "small", 16}, {"reduce", "small", 8},
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
