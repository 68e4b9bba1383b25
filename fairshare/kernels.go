package fairshare

// byKernel are the policies for which launches wait until they are let run.
var byKernel = map[string]bool{
	"fifo": true, "reorder": true, "piv": true, "dprr": true, "hpf": true, "ffs": true,
}

// ByKernel is whether the policy of that name decides about single launches, so
// that each waits for a Run verdict. Under the others launches never wait: State
// need not have any but those that run, for eviction.
func ByKernel(name string) bool { return byKernel[name] }

// ByPriority is whether, by the policy of that name, the most urgent launch has the
// GPU at once, whoever has it.
func ByPriority(name string) bool { return name == "piv" || name == "hpf" }
