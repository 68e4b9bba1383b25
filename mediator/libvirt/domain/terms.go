package domain

import (
	"fmt"
	"strings"

	"vgpud/mediator/api"
)

// SetTerms changes the terms of a domain's virtual GPU number n, by change. Everything else in the
// domain stays as it is, byte for byte. An invalid result is an error.
func SetTerms(src []byte, n int, change func(api.Terms) api.Terms) ([]byte, error) {
	d, err := parseDomain(src)
	if err != nil {
		return nil, err
	}
	gpus, err := d.devices()
	if err != nil {
		return nil, err
	}
	if n < 0 || n >= len(gpus) {
		return nil, fmt.Errorf("its definition has no virtual GPU %d, but %d from number 0 on: `vgpuctl define` gives it more", n, len(gpus))
	}
	g := gpus[n]
	t := change(g.Terms())
	if g.Weight != 0 || t.Weight != 1 { // 0 is written as no attribute, and means 1
		g.Weight = t.Weight
	}
	g.Cap, g.Guarantee, g.PriorityCeiling, g.Latency, g.KernelTimeLimit = t.Cap, t.Guarantee, t.PriorityCeiling, t.Latency, t.KernelTimeLimit
	g.Budget, g.Memory = t.Budget, t.MemoryLimitBytes
	if err := g.check(); err != nil {
		return nil, err
	}
	if g == gpus[n] {
		return src, nil
	}
	elements, err := d.devicesElements()
	if err != nil {
		return nil, err
	}
	e := elements[0].children[n]
	return apply(src, []edit{{e.extent(), d.rewritten(e, &g)}}), nil
}

// rewritten formats a <vgpud:gpu> with other attributes, and the prefix and declarations that it
// has.
func (d *document) rewritten(e *element, g *GPU) string {
	var b strings.Builder
	b.WriteString("<" + d.tag(e))
	for i, a := range e.attrs {
		if isDeclaration(a.Name.Space, a.Name.Local) {
			where := d.attrSpan(e, i)
			b.Write(d.src[where.from:where.to])
		}
	}
	b.WriteString(g.attributes() + "/>")
	return b.String()
}
