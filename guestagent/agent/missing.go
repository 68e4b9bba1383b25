package agent

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"vgpud/guestagent/allot"
)

// missing counts the calls of functions of CUDA that are not built, by all programs since the agent
// started.
type missing struct {
	mu        sync.Mutex
	functions map[string]*allot.Missing
}

// Bounds of what programs report.
const (
	maxMissing     = 1024 // functions; CUDA has fewer
	maxMissingName = 96   // bytes
)

// add adds a program's report, which has all of its calls so far.
func (m *missing) add(t *tenant, calls map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.functions == nil {
		m.functions = map[string]*allot.Missing{}
	}
	if t.missed == nil {
		t.missed = map[string]uint64{}
	}
	for name, n := range calls {
		before := t.missed[name]
		f := m.functions[name]
		if n <= before || !functionName(name) || f == nil && len(m.functions) >= maxMissing {
			continue
		}
		if f == nil {
			f = &allot.Missing{Function: name}
			m.functions[name] = f
		}
		if before == 0 {
			f.Programs++
		}
		f.Calls += n - before
		f.Last, f.At = t.Program, time.Now()
		t.missed[name] = n
	}
}

// functionName reports whether a name can be that of one of CUDA's functions.
func functionName(name string) bool {
	if len(name) < 3 || len(name) > maxMissingName || name[:2] != "cu" {
		return false
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_') {
			return false
		}
	}
	return true
}

// mostMissing is how many functions one answer has.
const mostMissing = 256

// reply returns the functions that were called most.
func (m *missing) reply() (r allot.Reply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.functions {
		r.Missing = append(r.Missing, *f)
	}
	slices.SortFunc(r.Missing, func(a, b allot.Missing) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Function, b.Function))
	})
	r.Missing = r.Missing[:min(len(r.Missing), mostMissing)]
	return r
}
