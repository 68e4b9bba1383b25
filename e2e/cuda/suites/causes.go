package main

import "regexp"

// causes explain failures that were looked into, by the tests' names.
var causes = []struct {
	tests *regexp.Regexp
	cause string
}{
	{regexp.MustCompile(`/for-(3|5|6|9|11|12)\.c$`), "the software GPU refuses the module: it compiles each kernel with all functions that the kernel may reach, some hundred kernels here, and that is more than 262,144 instructions together"},
	{regexp.MustCompile(`/ref-1\.C$`), "GCC's code lets one warp write shared memory that others may still read; a GPU's warps advance at like speed, the software GPU's don't"},
	{regexp.MustCompile(`/lib-(7[4-9]|8[13])\.c$`), "compares times to 2 %, which a busy machine's software GPU doesn't hold"},
	{regexp.MustCompile(`/pr88941\.c$`), "ends without waiting for its kernel, which a busy machine has not begun then"},
	{regexp.MustCompile(`/gpu_half_throughput\.cpp$`), "compares times: half must not be slower than float, but the software GPU has no fast instructions for it"},
	{regexp.MustCompile(`/async_device_copy\.cpp$`), "slow: its copies of 2.7 GB took longer than the limit on a busy machine"},
	{regexp.MustCompile(`/gpu_allocation_cache\.cpp$`), "slow: more than 80,000 kernels took longer than the limit on a busy machine"},
}

// causeOf returns a failure's explanation, or what the run found.
func causeOf(r result) string {
	for _, c := range causes {
		if c.tests.MatchString(r.Name) {
			return c.cause
		}
	}
	return r.Cause
}
