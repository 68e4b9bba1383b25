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

// Ceiling is the priority of a launch that asked for one, in a guest whose
// operator set a ceiling: "If a normal user sets the priority higher than the
// host thread, the EffiSha runtime ignores the value and uses the priority of the
// host thread instead" (EffiSha §6.4). ignored is whether that was so.
func Ceiling(asked, ceiling int) (priority int, ignored bool) {
	if asked > ceiling {
		return ceiling, true
	}
	return asked, false
}
