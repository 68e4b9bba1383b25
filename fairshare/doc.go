// Package fairshare decides which guest may use the GPU next. Its policies are pure functions of
// their input: no clock, no goroutine, no I/O, and therefore no locks. Package mediator/scheduler
// tells a [Policy] what happened and carries out its [Verdict]s. How the GPU is measured is package
// accounting's business.
//
// Policies by name, see [New]:
//
//	none       all guests run; the hardware's round-robin decides
//	dfq        weighted disengaged fair queueing
//	dfq-loga   disengaged fair queueing as LoGA §3.4 prints it, a baseline
//	loga-cl    the same by mean command length (LoGA §5.5), a baseline
//	loga       disengaged fair queueing as LoGA's authors published it, a baseline
//	loga-spans the same by mean command length, a baseline
//	neon       disengaged fair queueing by NEON's sampling, as published, a baseline
//
// Policies about single launches, which wait until a verdict lets them run ([ByKernel]):
//
//	fifo       one after the other to completion, in order of arrival, a baseline
//	reorder    to completion, short ones first (FLEP §6.3.2), a baseline
//	piv        priority-based immediate eviction (EffiSha §7)
//	dprr       dynamic priorities, round-robin (EffiSha §7)
//	hpf        highest priority first, then shortest (FLEP §5.2.1)
//	ffs        epochs by weight, as long as overhead demands (FLEP §5.2.2)
//
// The flow of a decision: [Bound] measures guests against their quotas and adjusts their weights,
// the policy inside it decides, and Bound limits the answer. Evictions are bounded in number for
// each guest that causes them ([Rate]) and charged to it ([EvictionCharges]).
//
// Files: policy.go has the input and the answer of a policy. account.go, usage.go, dfq.go,
// slices.go and rotation.go share by rounds. printed.go, released.go and sampled.go are the papers'
// rules. entitlement.go and bound.go with boundmeter.go and boundweights.go bound shares, by the rules
// of package quota. launchpolicy.go, table.go and ranked.go are common to policies about launches:
// piv.go, hpf.go, dprr.go, ffs.go. anticipate.go keeps the GPU free for a guest. evictions.go,
// evictioncharges.go and spatial.go are about evictions.
package fairshare
