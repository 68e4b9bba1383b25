// Package nova is the pure part of running vgpud on hosts that OpenStack drives: what a host offers
// to Placement, which requests make Placement have that, and what an instance's allocation grants
// on which GPU. It does no I/O and has no clock; [vgpud/mediator/nova/placement] sends the requests,
// and [vgpud/mediator/nova/agent] decides when.
//
// Placement has a tree of resource providers for each host, whose root is Nova's compute node. Each
// GPU is one child of the root, with two resource classes:
//
//	CUSTOM_VGPUD_SHARE       100 a GPU: hundredths of its time
//	CUSTOM_VGPUD_MEMORY_MIB  its memory
//
// [Offers] makes an [Offer] for each GPU of what the daemon says. [Plan] compares offers with the
// providers in Placement and returns the next request for each GPU that needs one. An instance's
// allocation names amounts and the GPU's provider, from which [Grants] finds the GPU.
//
// # Whose a provider is
//
// A provider's UUID is derived from its parent's and the GPU's name, and its name ends with the GPU's.
// A provider is ours only if its UUID is the one that follows from its parent and its name. Others
// are never written to, wherever they are in the tree.
package nova
