package demo

import (
	"strings"

	"vgpud/e2e/work"
)

// members are the demo's guests. The heavier a guest's weight the shorter its
// kernels, so that without a policy the order is the wrong way round (LoGA
// figure 2).
func members() []*member {
	return []*member{
		{weight: 1, Plan: work.Plan{Name: "long", Workers: 6, Channels: 6, Work: []work.Work{
			cases("matmul", "small", 2), cases("spmv", "small", 1), cases("triad", "small", 2),
		}}},
		{weight: 2, Plan: work.Plan{Name: "medium", Workers: 6, Channels: 6, Work: []work.Work{
			cases("reduce", "small", 2), cases("warp", "small", 2), cases("scan", "small", 1),
		}}},
		{weight: 4, Plan: work.Plan{Name: "short", Workers: 6, Channels: 6, Work: []work.Work{
			cases("vecadd", "trivial", 8), cases("nnlayer", "trivial", 4), cases("blackscholes", "trivial", 8),
		}}},
	}
}

// cases are cases of a kernel, launched that often between two checks.
func cases(kernel, size string, repeat int) work.Work {
	return work.Work{Kernel: kernel, Size: size, Repeat: repeat}
}

// describe names what a guest works at.
func (m *member) describe() string {
	var names []string
	for _, w := range m.Work {
		names = append(names, w.String())
	}
	return strings.Join(names, ", ")
}
