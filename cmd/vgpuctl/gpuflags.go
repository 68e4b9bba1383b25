package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
)

// flagUsage describes the flags of a virtual GPU. They are the same, spelled the same, for define,
// attach and create, and as attributes of <vgpud:gpu>.
var flagUsage = map[string]string{
	"weight":            "the guest's `part` of the GPU relative to other guests' weights (default 1)",
	"cap":               "the largest `part` of the GPU's time that it gets, such as 0.5 or 50%",
	"guarantee":         "the least `part` of the GPU's time that it gets while it has work",
	"priority":          "the highest `priority` that its launches may have (default 0)",
	"latency":           "the `time` within which kernels of lower priority should leave the GPU for its own (default 100us)",
	"memory":            "GPU memory that it may use, a `size` such as 4GiB (default: all)",
	"gpu":               "the physical GPU's `name`; any: of those with room, the one with the least sum of weights (default any)",
	"float":             "place each of its contexts on whichever GPU has room for it: `yes` or no (default no)",
	"kernel-time-limit": "end a kernel after this much GPU `time`; none: never (default: the daemon's setting, 10s)",
	"budget":            "GPU `time` in a day, week or month, such as 10h/day; see vgpuctl set vm",
	"bar2":              "memory shared with the guest, a `size` that is a power of two (default 256MiB)",
}

// gpuFlags adds the flags of a virtual GPU, one for each attribute of <vgpud:gpu>.
func gpuFlags(c *cobra.Command, o *options, gpu *domain.GPU) {
	for _, name := range domain.Attributes() {
		c.Flags().Var(&gpuFlag{gpu: gpu, name: name}, name, flagUsage[name])
	}
	c.Flags().Lookup("float").NoOptDefVal = "yes"
	completeFlag(c, "gpu", completeAnyGPU(o))
	for flag, values := range map[string][]string{
		"cap": {"25%", "50%", "75%"}, "guarantee": {"10%", "25%", "50%"}, "memory": {"1GiB", "4GiB", "16GiB"}, "bar2": {"64MiB", "256MiB"},
		"kernel-time-limit": {"1s", "10s", "none"}, "priority": {"0", "5", "10", strconv.Itoa(api.MaxPriority)}, "weight": {"1", "2", "4"}, "latency": {"50us", "100us", "500us", "default"}, "float": {"yes", "no"},
	} {
		completeFlag(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// oldGPUFlags adds earlier spellings of the flags, which still work: sizes may be in bytes.
func oldGPUFlags(c *cobra.Command, gpu *domain.GPU) {
	for _, f := range []struct{ old, name string }{{"memory-bytes", "memory"}, {"shared-bytes", "bar2"}, {"priority-ceiling", "priority"}} {
		c.Flags().Var(&gpuFlag{gpu: gpu, name: f.name, bytes: strings.HasSuffix(f.old, "-bytes")}, f.old, flagUsage[f.name])
		if err := c.Flags().MarkDeprecated(f.old, "use --"+f.name); err != nil {
			panic(err)
		}
	}
}

// gpuFlag is the flag for one attribute.
type gpuFlag struct {
	gpu         *domain.GPU
	name, value string
	bytes       bool // a number without a unit is a size, too
}

// String implements [pflag.Value].
func (f *gpuFlag) String() string { return f.value }

// Type implements [pflag.Value].
func (f *gpuFlag) Type() string { return "string" }

// Set implements [pflag.Value]. Parts may also be percentages, or none.
func (f *gpuFlag) Set(s string) error {
	f.value = s
	if f.name == "cap" || f.name == "guarantee" {
		x, err := parseRatio(s)
		if err != nil {
			return err
		}
		s = strconv.FormatFloat(*x, 'f', -1, 64)
	}
	if f.bytes {
		n, err := strconv.ParseUint(s, 10, 50)
		if err == nil && n == 0 {
			return nil // the default
		}
		if err != nil || n%1024 != 0 {
			return fmt.Errorf("%q: want whole KiB in bytes; use --%s with a size such as 256MiB", s, f.name)
		}
		s = strconv.FormatUint(n/1024, 10) + "KiB"
	}
	return f.gpu.Set(f.name, s)
}
