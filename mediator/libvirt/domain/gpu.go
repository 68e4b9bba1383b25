package domain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"vgpud/fairshare/quota"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// Namespace is the namespace of vgpud's elements in a domain's metadata. The number at its end is
// their version.
const Namespace = "urn:vgpud:domain:1"

const (
	namespaces  = "urn:vgpud" // the prefix of all versions' namespaces
	devicesName = "devices"
	gpuName     = "gpu"
	vgpudPrefix = "vgpud" // as Define writes it
)

// MaxGPUs is the largest number of virtual GPUs of a domain.
const MaxGPUs = 16

// GPU is a virtual GPU that a domain asks for. Its fields have the meaning of those of
// [api.VMSpec]; zero values mean defaults.
type GPU struct {
	Weight          float64
	Cap             float64
	Guarantee       float64
	PriorityCeiling int
	Latency         time.Duration
	// Memory is the GPU memory that it may use, in bytes.
	Memory uint64
	// GPU is the physical GPU's name, or [api.AnyGPU].
	GPU string
	// Float has each of the guest's contexts be placed on whichever GPU has room; GPU is none then.
	Float bool
	// KernelTimeLimit is the GPU time after which a kernel is ended, or [api.NoTimeLimit].
	KernelTimeLimit time.Duration
	// BAR2 is the size of the memory shared with the guest, in bytes.
	BAR2 uint64
	// Budget bounds its GPU time in a calendar period.
	Budget quota.Budget
}

// Devices are the virtual GPUs of a domain, in the order of their numbers.
type Devices []GPU

// Terms returns the GPU's terms.
func (g *GPU) Terms() api.Terms {
	return api.Terms{Weight: cmp.Or(g.Weight, 1), Cap: g.Cap, Guarantee: g.Guarantee, PriorityCeiling: g.PriorityCeiling, Latency: g.Latency, KernelTimeLimit: g.KernelTimeLimit, Budget: g.Budget, MemoryLimitBytes: g.Memory}
}

// Bar2 returns the size of the memory shared with the guest, in bytes.
func (g *GPU) Bar2() uint64 { return cmp.Or(g.BAR2, abi.DefaultSharedBytes) }

// attribute is an attribute of <vgpud:gpu>.
type attribute struct {
	name string
	read func(g *GPU, s string) error
	// write returns the value, or "" for the default.
	write func(g *GPU) string
}

// attributes are in the order in which they are written.
var attributes = []attribute{
	decimal("weight", api.MinWeight, api.MaxWeight, func(g *GPU) *float64 { return &g.Weight }),
	decimal("cap", 0, 1, func(g *GPU) *float64 { return &g.Cap }),
	decimal("guarantee", 0, 1, func(g *GPU) *float64 { return &g.Guarantee }),
	{"priority", func(g *GPU, s string) (err error) {
		g.PriorityCeiling, err = parseInt(s, api.MaxPriority)
		return err
	}, func(g *GPU) string {
		if g.PriorityCeiling == 0 {
			return ""
		}
		return fmt.Sprint(g.PriorityCeiling)
	}},
	{"latency", func(g *GPU, s string) (err error) {
		if len(s) > maxNumber {
			return fmt.Errorf("%s: want a time such as 100us", quote(s))
		}
		g.Latency, err = api.ParseLatency(s)
		return err
	}, func(g *GPU) string {
		if g.Latency == 0 {
			return ""
		}
		return g.Latency.String()
	}},
	size("memory", func(g *GPU) *uint64 { return &g.Memory }),
	{"gpu", func(g *GPU, s string) error {
		if api.CheckName(s) != nil {
			return fmt.Errorf("%s: want a GPU's name as `vgpuctl get gpus` shows it, or %q", quote(s), api.AnyGPU)
		}
		g.GPU = s
		return nil
	}, func(g *GPU) string { return g.GPU }},
	{"float", func(g *GPU, s string) error {
		switch s {
		case "yes", "no":
			g.Float = s == "yes"
			return nil
		}
		return fmt.Errorf("%s: want yes or no", quote(s))
	}, func(g *GPU) string {
		if !g.Float {
			return ""
		}
		return "yes"
	}},
	{"kernel-time-limit", func(g *GPU, s string) (err error) {
		g.KernelTimeLimit, err = parseTimeLimit(s)
		return err
	}, func(g *GPU) string {
		if g.KernelTimeLimit == 0 {
			return ""
		}
		return formatTimeLimit(g.KernelTimeLimit)
	}},
	bar2(),
	{"budget", func(g *GPU, s string) (err error) {
		if len(s) > maxBudget {
			return fmt.Errorf("%d characters: want at most %d", len(s), maxBudget)
		}
		g.Budget, err = quota.Parse(s)
		return err
	}, func(g *GPU) string {
		if g.Budget == (quota.Budget{}) {
			return ""
		}
		return g.Budget.String()
	}},
}

// maxBudget is more characters than a budget has.
const maxBudget = 128

// decimal returns an attribute that is a number from low to high, and is not written if it is 0.
func decimal(name string, low, high float64, field func(*GPU) *float64) attribute {
	return attribute{name, func(g *GPU, s string) (err error) {
		*field(g), err = parseWithin(s, low, high)
		return err
	}, func(g *GPU) string {
		if *field(g) == 0 {
			return ""
		}
		return formatDecimal(*field(g))
	}}
}

// size returns an attribute that is a size, and is not written if it is 0.
func size(name string, field func(*GPU) *uint64) attribute {
	return attribute{name, func(g *GPU, s string) (err error) {
		*field(g), err = parseSize(s)
		return err
	}, func(g *GPU) string {
		if *field(g) == 0 {
			return ""
		}
		return formatSize(*field(g))
	}}
}

// bar2 returns the attribute for the size of a BAR.
func bar2() attribute {
	a := size("bar2", func(g *GPU) *uint64 { return &g.BAR2 })
	read := a.read
	a.read = func(g *GPU, s string) error {
		if err := read(g, s); err != nil {
			return err
		}
		if g.BAR2 < abi.MinSharedBytes || g.BAR2 > abi.MaxSharedBytes || !powerOfTwo(g.BAR2) {
			return fmt.Errorf("%s: want a power of two from %s to %s", quote(s), formatSize(abi.MinSharedBytes), formatSize(abi.MaxSharedBytes))
		}
		return nil
	}
	return a
}

// Check returns an error if the devices are invalid: if they could not be read back after being
// written.
func (ds Devices) Check() error {
	if len(ds) == 0 || len(ds) > MaxGPUs {
		return fmt.Errorf("%d virtual GPUs: want 1 to %d", len(ds), MaxGPUs)
	}
	for i := range ds {
		if err := ds[i].check(); err != nil {
			return fmt.Errorf("virtual GPU %d: %w", i, err)
		}
	}
	return nil
}

func (g *GPU) check() error {
	if !finite(g.Weight) || !finite(g.Cap) || !finite(g.Guarantee) {
		return fmt.Errorf("weight %v, cap %v, guarantee %v: want numbers", g.Weight, g.Cap, g.Guarantee)
	}
	if g.Memory%1024 != 0 {
		return fmt.Errorf("memory of %d bytes: want whole KiB", g.Memory)
	}
	var read GPU
	for _, a := range attributes {
		s := a.write(g)
		if s == "" {
			continue
		}
		if err := a.read(&read, s); err != nil {
			return fmt.Errorf("%s %w", a.name, err)
		}
	}
	return read.checkTerms()
}

// checkTerms returns an error if the terms contradict each other.
func (g *GPU) checkTerms() error {
	if g.Cap > 0 && g.Guarantee > g.Cap {
		return fmt.Errorf("a guarantee of %s is more than the cap, %s: want at most the cap", formatDecimal(g.Guarantee), formatDecimal(g.Cap))
	}
	if g.Float && g.GPU != "" && g.GPU != api.AnyGPU {
		return fmt.Errorf("a guest that floats is on whichever GPU has room: want no gpu %s", quote(g.GPU))
	}
	return nil
}

// element formats the GPU for the metadata.
func (g *GPU) element() string {
	return "<" + vgpudPrefix + ":" + gpuName + g.attributes() + "/>"
}

// attributes formats the attributes that are not the defaults, each after a space.
func (g *GPU) attributes() string {
	var b strings.Builder
	for _, a := range attributes {
		if s := a.write(g); s != "" {
			b.WriteString(" " + a.name + `="` + escape(s) + `"`)
		}
	}
	return b.String()
}
