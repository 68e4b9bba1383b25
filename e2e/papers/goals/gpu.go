package goals

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"vgpud/e2e/nvidia/report"
)

// GPUFile are rows that were measured on a GPU: of those of a set, what e2e/nvidia/run has written.
type GPUFile struct {
	// GPU names it, its driver, and the day.
	GPU  string `json:"gpu"`
	Rows []Row  `json:"rows"`
}

// FromGPU reads a file that e2e/nvidia/run has written, and returns its rows that the set has. factor
// converts a row's value to the set's unit. A missed row without a why has its why of whys.
func (s *Set) FromGPU(path string, factor func(id string) float64, whys map[string]string) (*GPUFile, error) {
	f, err := report.Read(path)
	if err != nil {
		return nil, err
	}
	out := &GPUFile{GPU: fmt.Sprintf("%s, driver %s, %s", f.GPU, f.Driver, f.Date)}
	for _, x := range f.Rows {
		g := s.from(x.ID)
		if g == nil {
			continue
		}
		by := factor(g.ID)
		r := g.Row(x.Value*by, x.Spread*by, x.Runs, x.Command)
		r.Beside, r.Why, r.Baseline, r.Detail = x.How, x.Why, x.Baseline, x.Detail
		if r.Missed() && r.Why == "" {
			r.Why = whys[r.ID]
		}
		out.Rows = append(out.Rows, r)
	}
	if len(out.Rows) == 0 {
		return nil, errors.New(path + " has no such rows")
	}
	return out, nil
}

// from returns the goal of a row of e2e/nvidia's, or nil.
func (s *Set) from(id string) *Goal {
	i := slices.IndexFunc(s.Goals, func(g Goal) bool { return cmp.Or(g.From, g.ID) == id })
	if i < 0 {
		return nil
	}
	return &s.Goals[i]
}
