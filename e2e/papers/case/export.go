package main

import (
	"vgpud/e2e/papers/case/live"
)

// modelled returns the jobs of a mix as package live runs them.
func modelled(mix []benchmark, h *host) []live.Modelled {
	all := make([]live.Modelled, len(mix))
	for i, b := range mix {
		all[i] = b.modelled(h)
	}
	return all
}

// modelled returns a benchmark's job without what each process does first.
func (b benchmark) modelled(h *host) live.Modelled {
	j, r := b.on(h, 1), rules[b.rule]
	m := live.Modelled{
		Name: j.name, Memory: j.request.Memory,
		Before: round(j.before.Seconds() - process), After: round(j.after.Seconds()),
	}
	copies := []live.Step{{In: uint64(b.n * r.in)}, {Out: uint64(b.n * r.out)}}
	for _, s := range j.steps {
		switch s.kind {
		case onHost:
			m.Steps = append(m.Steps, live.Step{Host: round(s.time.Seconds())})
		case copying:
			m.Steps = append(m.Steps, copies[0])
			copies = copies[1:]
		case onGPU:
			if last := &m.Steps[len(m.Steps)-1]; last.Launches > 0 { // they are all alike
				last.Launches++
				continue
			}
			m.Steps = append(m.Steps, live.Step{Launches: 1, Seconds: round(s.time.Seconds())})
		}
	}
	return m
}
