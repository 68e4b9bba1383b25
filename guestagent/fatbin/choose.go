package fatbin

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Capability is a GPU's compute capability, such as 9.0.
type Capability struct {
	Major, Minor int
}

// number returns the capability as targets are numbered: 90 for 9.0.
func (c Capability) number() int { return c.Major*10 + c.Minor }

// Choose returns the entry for a GPU and its image. Machine code, which is looked at only if code
// is set, comes before PTX: it fits a GPU of its own major number and of no smaller minor number.
// PTX fits every GPU whose capability is at least its own, unless its target is of one architecture
// (sm_90a: exactly 9.0) or one family (sm_100f). The newest that fits is chosen, and among those of
// one capability the most specific.
//
// Errors have the code [NoBinary] if nothing fits, and [InvalidImage] if what fits is broken or
// relocatable.
func (c *Container) Choose(gpu Capability, code bool) (*Entry, []byte, error) {
	if code {
		for _, e := range c.newestFirst(ELF) {
			if e.SM/10 != gpu.Major || e.SM%10 > gpu.Minor {
				continue
			}
			b, err := e.Data()
			if err == nil && Detect(b) != FormatELF {
				err = invalid(e.offset, "machine code that is no ELF file")
			}
			if err == nil && Relocatable(b) {
				err = invalid(e.offset, "relocatable machine code, which has to be linked first")
			}
			return e, b, err
		}
	}
	var best *Entry
	var image []byte
	rank := -1
	for _, e := range c.newestFirst(PTX) {
		if best != nil && e.SM < best.SM {
			break
		}
		if e.SM > gpu.number() {
			continue
		}
		b, err := e.Data()
		if err == nil && len(b) == 0 {
			err = invalid(e.offset, "an entry for PTX that holds none")
		}
		if err != nil {
			return e, nil, err
		}
		if r, fits := fit(target(b), e.SM, gpu); fits && r > rank {
			best, image, rank = e, b, r
		}
	}
	if best == nil {
		return nil, nil, &Error{Code: NoBinary, Msg: fmt.Sprintf("no code for compute capability %d.%d: %s", gpu.Major, gpu.Minor, c.describe())}
	}
	return best, image, nil
}

// newestFirst returns the entries of a kind, those of the highest capability first.
func (c *Container) newestFirst(k Kind) (of []*Entry) {
	for i := range c.Entries {
		if c.Entries[i].Kind == k {
			of = append(of, &c.Entries[i])
		}
	}
	slices.SortStableFunc(of, func(a, b *Entry) int { return cmp.Compare(b.SM, a.SM) })
	return of
}

// fit reports whether PTX with a target fits a GPU, and how specific the target is. The capability
// of a container's entry counts if the text's target can't be read.
func fit(target string, sm int, gpu Capability) (rank int, fits bool) {
	name, _ := strings.CutPrefix(target, "sm_")
	suffix := strings.TrimLeft(name, "0123456789")
	if n, err := strconv.Atoi(strings.TrimSuffix(name, suffix)); err == nil {
		sm = n
	}
	switch suffix {
	case "a":
		return 2, sm == gpu.number()
	case "f":
		return 1, sm/10 == gpu.Major && sm%10 <= gpu.Minor
	}
	return 0, sm <= gpu.number()
}

// target returns the architecture in the .target directive of PTX text, or "". The directive is
// among the first lines.
func target(text []byte) string {
	for line := range bytes.Lines(text[:min(len(text), 64<<10)]) {
		line, _, _ = bytes.Cut(line, []byte("//"))
		f := bytes.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' || r == '\r' || r == '\n' })
		if len(f) >= 2 && string(f[0]) == ".target" {
			return string(f[1])
		}
	}
	return ""
}

// describe lists a few of the container's entries.
func (c *Container) describe() string {
	const most = 8
	if len(c.Entries) == 0 {
		return "the fat binary is empty"
	}
	var names []string
	for _, e := range c.Entries[:min(len(c.Entries), most)] {
		switch e.Kind {
		case PTX:
			names = append(names, fmt.Sprintf("PTX for sm_%d", e.SM))
		case ELF:
			names = append(names, fmt.Sprintf("machine code for sm_%d", e.SM))
		default:
			names = append(names, fmt.Sprintf("kind %d for sm_%d", e.Kind, e.SM))
		}
	}
	if more := len(c.Entries) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return "the fat binary has " + strings.Join(names, ", ")
}
