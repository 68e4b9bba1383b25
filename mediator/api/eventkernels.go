package api

import (
	"fmt"
	"net/http"
)

// EventKernel is a registered event kernel of a guest.
type EventKernel struct {
	VM     string `json:"vm"`
	Domain string `json:"domain,omitempty"`
	Number int    `json:"number"`
	// Context is the slot of its context in the guest.
	Context int    `json:"context"`
	GPU     string `json:"gpu"`
	Kernel  string `json:"kernel"`
	// Tier says what launches its events: the "engine" of a GPU in software; on an NVIDIA GPU a resident
	// "warp" or resident "blocks", or the "host", when it is kicked.
	Tier string `json:"tier"`
	// Reason says why that is the host, by a name of a closed list (docs/nvidia.md#event-kernels); empty
	// for others.
	Reason string `json:"reason,omitempty"`
	// Resident reports whether the GPU polls its doorbell; else it is parked.
	Resident bool   `json:"resident"`
	Events   uint64 `json:"events"`
	Dropped  uint64 `json:"dropped"`
	Stray    uint64 `json:"stray"`
	// P50Seconds and P99Seconds are from a ring, as the GPU found it, to the event's end.
	P50Seconds float64 `json:"p50_seconds"`
	P99Seconds float64 `json:"p99_seconds"`
}

// Name names the event kernel among the host's: "VM/NUMBER".
func (k *EventKernel) Name() string { return fmt.Sprintf("%s/%d", k.VM, k.Number) }

// serveEventKernels answers all guests' event kernels, or those of one.
func serveEventKernels(h Host, r *http.Request) (any, error) {
	vm := r.URL.Query().Get("vm")
	all := []EventKernel{}
	for _, v := range h.VMs() {
		if vm == "" || v.Name == vm {
			all = append(all, v.EventKernels...)
		}
	}
	return all, nil
}
