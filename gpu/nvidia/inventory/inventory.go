package inventory

import (
	"context"
	"errors"
	"time"
)

// ErrUnavailable means that the host's GPUs can't be queried: the program, NVIDIA's library, or cgo
// when the program was built, is missing.
var ErrUnavailable = errors.New("the driver's management library is not available here")

// Inventory lists the host's GPUs, which stay the same while the driver is loaded.
type Inventory struct {
	// Driver is the driver's version, for example 580.159.04.
	Driver string `json:"driver"`
	// CUDA is the newest CUDA version that the driver supports, 13000 for 13.0.
	CUDA int   `json:"cuda"`
	GPUs []GPU `json:"gpus"`
}

// GPU is one of them. Strings are empty if the driver does not report them.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"` // GPU-…
	// PCI is the address, 0000:17:00.0.
	PCI         string `json:"pci"`
	Name        string `json:"name"`
	MemoryBytes uint64 `json:"memory_bytes"`
	// MIG is on or off, or empty if the GPU can't be divided.
	MIG string `json:"mig,omitempty"`
	// ComputeMode is default, exclusive-process or prohibited.
	ComputeMode string `json:"compute_mode,omitempty"`
	// Persistence is on if the driver keeps the GPU initialised while it is unused, or off.
	Persistence string `json:"persistence,omitempty"`
}

// Warnings returns the GPU's settings that keep guests from sharing it, with advice.
func (g *GPU) Warnings() (all []string) {
	if g.MIG == "on" {
		all = append(all, "MIG is on: vgpud shares whole GPUs, and a part of one is accounted as if it were one; `nvidia-smi -mig 0` turns it off")
	}
	switch g.ComputeMode {
	case "exclusive-process":
		all = append(all, "compute mode is exclusive-process: each guest context is a process of its own, and all but one are refused; `nvidia-smi -c DEFAULT` allows them")
	case "prohibited":
		all = append(all, "compute mode is prohibited: no guest context is allowed; `nvidia-smi -c DEFAULT` allows them")
	}
	return all
}

// Sample is a GPU's state at one time. Fields are nil or empty if the driver does not report them
// for this GPU.
type Sample struct {
	UUID string `json:"uuid"`
	// Lost reports whether the driver can't reach the GPU any more.
	Lost bool `json:"lost,omitempty"`

	TemperatureCelsius *float64 `json:"temperature_celsius,omitempty"`
	PowerWatts         *float64 `json:"power_watts,omitempty"`
	PowerLimitWatts    *float64 `json:"power_limit_watts,omitempty"`
	SMClockHertz       *float64 `json:"sm_clock_hertz,omitempty"`
	MemoryClockHertz   *float64 `json:"memory_clock_hertz,omitempty"`
	// MemoryUsedBytes includes the driver's own memory.
	MemoryUsedBytes *uint64 `json:"memory_used_bytes,omitempty"`
	// BusyRatio is the part of the driver's last sampling interval in which a kernel was on the
	// GPU, and MemoryBusyRatio the part in which its memory was read or written.
	BusyRatio       *float64 `json:"busy_ratio,omitempty"`
	MemoryBusyRatio *float64 `json:"memory_busy_ratio,omitempty"`
	// Throttled lists the reasons for reduced clocks, except that the GPU is idle.
	Throttled []string `json:"throttled,omitempty"`
	// ECCCorrected and ECCUncorrected count memory errors since the driver was loaded.
	ECCCorrected   *uint64 `json:"ecc_corrected,omitempty"`
	ECCUncorrected *uint64 `json:"ecc_uncorrected,omitempty"`
	// Recovery is the recovery that the driver itself wants, since R570.
	Recovery Recovery `json:"recovery,omitempty"`
}

// ThrottleReasons are the values of [Sample].Throttled, in the order of the driver's bits
// (nvmlClocksEventReason*).
var ThrottleReasons = []string{
	"application-clocks", "power-cap", "hardware-slowdown", "sync-boost", "thermal", "hardware-thermal", "power-brake", "display-clock",
}

// Recovery is an action on a GPU that the driver wants (NVML_GPU_RECOVERY_ACTION).
type Recovery string

// The recoveries. The empty string means unknown.
const (
	RecoveryNone          Recovery = "none"
	RecoveryReset         Recovery = "reset"
	RecoveryReboot        Recovery = "reboot"
	RecoveryDrainPeers    Recovery = "drain-peers"
	RecoveryDrainAndReset Recovery = "drain-and-reset"
	RecoveryFabric        Recovery = "recover-fabric"
)

// XidEvent is an error that the driver reported for a GPU.
type XidEvent struct {
	UUID string `json:"uuid"`
	Xid  uint64 `json:"xid"`
}

// Library is NVML as [Serve] uses it. Next is called from one goroutine, the other methods from
// another.
type Library interface {
	Inventory() (Inventory, error)
	// Samples returns samples of all GPUs, in the order of the inventory.
	Samples() ([]Sample, error)
	// Next waits for an error of a GPU until ctx ends.
	Next(ctx context.Context) (XidEvent, error)
	Close() error
}

// DefaultEvery is the program's default sampling interval.
const DefaultEvery = 5 * time.Second
