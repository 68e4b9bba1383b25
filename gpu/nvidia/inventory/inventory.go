package inventory

import (
	"context"
	"errors"
	"time"
)

// ErrUnavailable is wrapped where nothing can be said of the host's GPUs: the
// program, NVIDIA's library, or cgo when the program was built, is missing.
var ErrUnavailable = errors.New("the driver's management library is not to be had here")

// Inventory is the host's GPUs as they are for as long as the driver is loaded.
type Inventory struct {
	// Driver is the driver's version, 580.159.04 for example.
	Driver string `json:"driver"`
	// CUDA is the newest version of CUDA that the driver has, 13000 for 13.0.
	CUDA int   `json:"cuda"`
	GPUs []GPU `json:"gpus"`
}

// GPU is one of them. Texts are empty where the driver does not say.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"` // GPU-…
	// PCI is its address, 0000:17:00.0.
	PCI         string `json:"pci"`
	Name        string `json:"name"`
	MemoryBytes uint64 `json:"memory_bytes"`
	// MIG says whether the GPU is divided: on, off, or empty where it can't be.
	MIG string `json:"mig,omitempty"`
	// ComputeMode is who may use the GPU: default, exclusive-process, prohibited.
	ComputeMode string `json:"compute_mode,omitempty"`
	// Persistence says whether the driver keeps the GPU ready while nobody uses it:
	// on or off.
	Persistence string `json:"persistence,omitempty"`
}

// Warnings are what of the GPU's settings keeps guests from sharing it, and what to do.
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

// Sample is how a GPU is at one time. What is nil or empty the driver does not
// say of this GPU.
type Sample struct {
	UUID string `json:"uuid"`
	// Lost reports whether the driver can't reach the GPU any more.
	Lost bool `json:"lost,omitempty"`

	TemperatureCelsius *float64 `json:"temperature_celsius,omitempty"`
	PowerWatts         *float64 `json:"power_watts,omitempty"`
	PowerLimitWatts    *float64 `json:"power_limit_watts,omitempty"`
	SMClockHertz       *float64 `json:"sm_clock_hertz,omitempty"`
	MemoryClockHertz   *float64 `json:"memory_clock_hertz,omitempty"`
	// MemoryUsedBytes includes what the driver keeps for itself.
	MemoryUsedBytes *uint64 `json:"memory_used_bytes,omitempty"`
	// BusyRatio is the part of the driver's last sampling time in which a kernel was
	// on the GPU, and MemoryBusyRatio in which its memory was read or written.
	BusyRatio       *float64 `json:"busy_ratio,omitempty"`
	MemoryBusyRatio *float64 `json:"memory_busy_ratio,omitempty"`
	// Throttled are the reasons for which the clocks are below what they could be,
	// but for the one that there is nothing to do.
	Throttled []string `json:"throttled,omitempty"`
	// ECCCorrected and ECCUncorrected count memory errors since the driver was
	// loaded.
	ECCCorrected   *uint64 `json:"ecc_corrected,omitempty"`
	ECCUncorrected *uint64 `json:"ecc_uncorrected,omitempty"`
	// Recovery is what the driver itself wants done to the GPU, since R570.
	Recovery Recovery `json:"recovery,omitempty"`
}

// ThrottleReasons are the values of [Sample].Throttled, in the order of the driver's
// bits (nvmlClocksEventReason*).
var ThrottleReasons = []string{
	"application-clocks", "power-cap", "hardware-slowdown", "sync-boost", "thermal", "hardware-thermal", "power-brake", "display-clock",
}

// Recovery is what a driver wants done to a GPU (NVML_GPU_RECOVERY_ACTION).
type Recovery string

// The recoveries. The empty one is not known.
const (
	RecoveryNone          Recovery = "none"
	RecoveryReset         Recovery = "reset"
	RecoveryReboot        Recovery = "reboot"
	RecoveryDrainPeers    Recovery = "drain-peers"
	RecoveryDrainAndReset Recovery = "drain-and-reset"
	RecoveryFabric        Recovery = "recover-fabric"
)

// XidEvent is an error that the driver reported of a GPU.
type XidEvent struct {
	UUID string `json:"uuid"`
	Xid  uint64 `json:"xid"`
}

// Library is NVML as [Serve] uses it. Next is called from one goroutine, the others
// from another.
type Library interface {
	Inventory() (Inventory, error)
	// Samples are of all GPUs, as in the inventory.
	Samples() ([]Sample, error)
	// Next waits for an error of a GPU, until ctx ends.
	Next(ctx context.Context) (XidEvent, error)
	Close() error
}

// DefaultEvery is how often the program samples.
const DefaultEvery = 5 * time.Second
