package main

import (
	"vgpud/e2e/papers/parallel"
	"vgpud/gpu/soft/machine/warps"
)

// victimChoices and flushSets are figure 11's columns and rows.
var (
	victimChoices = []warps.Victims{warps.Oldest, warps.Newest, warps.Ready}
	flushSets     = []struct {
		name string
		set  warps.Flush
	}{
		{"none", 0}, {"victim's priority raised", warps.Raise}, {"buffer flushed", warps.Buffer}, {"barrier skipped", warps.Skip},
		{"loads replayed", warps.Replay}, {"all four", warps.All},
	}
)

// flushing is what figure 11 is drawn from: results by background, victims and set.
type flushing [][][]warps.Result

// flush preempts warps of each background at random times for events that need little, and does not
// execute those (§VI.B).
func (l *lab) flush() (flushing, error) {
	nv, nf := len(victimChoices), len(flushSets)
	all, err := parallel.Map(len(l.backgrounds)*nv*nf, func(i int) (warps.Result, error) {
		bg := l.backgrounds[i/(nv*nf)]
		o := warps.Options{Technique: warps.Preempt, Victims: victimChoices[i/nf%nv], Flush: flushSets[i%nf].set, Skip: true}
		return l.run(bg, l.ping, o, 1, l.gap(bg), seed)
	})
	if err != nil {
		return nil, err
	}
	f := make(flushing, len(l.backgrounds))
	for b := range f {
		f[b] = make([][]warps.Result, nv)
		for v := range f[b] {
			f[b][v] = all[(b*nv+v)*nf:][:nf]
		}
	}
	return f, nil
}

// mean returns the mean of the backgrounds' mean latencies, in cycles.
func (f flushing) mean(victims, set int) float64 {
	var each []float64
	for b := range f {
		each = append(each, mean(f[b][victims][set].Flushes))
	}
	return mean(known(each))
}

// victims returns the number of preemptions.
func (f flushing) victims(victims, set int) (n int) {
	for b := range f {
		n += f[b][victims][set].Preempted
	}
	return n
}
