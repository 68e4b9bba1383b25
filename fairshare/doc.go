// Package fairshare decides which guest may use the GPU next. Its policies are
// pure functions of what they are told: no clock, no goroutine, no input or
// output. Whoever has those (the mediator) tells a [Policy] what happened and
// carries out its [Verdict]s.
//
// Policies by name, see [New]:
//
//	none       everybody runs; the hardware's round-robin decides
//	dfq        weighted disengaged fair queueing
//	dfq-loga   disengaged fair queueing as LoGA §3.4 prints it, a baseline
//	loga-cl    the same by mean command length (LoGA §5.5), a baseline
//	loga       disengaged fair queueing as LoGA's authors published it, a baseline
//	loga-spans the same by mean command length, a baseline
//	neon       disengaged fair queueing by NEON's sampling, as published, a baseline
//
// and, about single launches, which wait until they are let run ([ByKernel]):
//
//	fifo       one after the other to completion, in order of arrival, a baseline
//	reorder    to completion, short ones first (FLEP §6.3.2), a baseline
//	piv        priority-based immediate eviction (EffiSha §7)
//	dprr       dynamic priorities, round-robin (EffiSha §7)
//	hpf        highest priority first, then shortest (FLEP §5.2.1)
//	ffs        epochs by weight, as long as overhead demands (FLEP §5.2.2)
//
// Quotas bound any policy's answer: see [Bound]. Evictions are bounded in number
// for each guest that causes them ([Rate]), and charged to it ([EvictionCharges]).
//
// To read: policy.go, what a policy is told and answers; account.go, usage.go, dfq.go,
// slices.go and rotation.go, sharing by rounds; printed.go, released.go and sampled.go,
// the papers' rules; entitlement.go, quota.go; book.go, ranked.go, what policies about
// launches have in common, then piv.go, hpf.go, dprr.go and ffs.go; anticipate.go, for
// whom the GPU is kept free; evictions.go, ledger.go, spatial.go.
package fairshare
