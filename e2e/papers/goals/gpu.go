package goals

import (
	"errors"
	"fmt"

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
		g := s.Of(x.ID)
		if g == nil {
			continue
		}
		by := factor(x.ID)
		r := g.Row(x.Value*by, x.Spread*by, x.Runs, x.Command)
		r.Beside, r.Why = x.How, x.Why
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
