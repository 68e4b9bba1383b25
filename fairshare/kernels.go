package fairshare

// byKernel are the policies under which launches wait until a verdict lets them run.
var byKernel = map[string]bool{
	"fifo": true, "reorder": true, "piv": true, "dprr": true, "hpf": true, "ffs": true,
}

// ByKernel reports whether the policy with a name decides about single launches, so that each waits
// for a Run verdict. Under the other policies launches never wait, and State.Launches only needs
// those that run, for eviction.
func ByKernel(name string) bool { return byKernel[name] }

// ByPriority reports whether, under the policy with a name, the most urgent launch gets the GPU at
// once, whichever launch has it.
func ByPriority(name string) bool { return name == "piv" || name == "hpf" }

// EvictsEquals reports whether, under the policy with a name, a running kernel is told to leave for
// another guest's launch of no higher priority: it is shorter, or the kernel's turn is over.
func EvictsEquals(name string) bool { return name == "hpf" || name == "ffs" || name == "dprr" }
