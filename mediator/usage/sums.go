package usage

import (
	"math"
	"time"

	"vgpud/mediator/api"
)

// Subject is a guest on a GPU, as bills name it. A guest that is renamed, or gets another owner, is
// another subject from then on.
type Subject struct {
	VM string
	// Domain and DomainUUID are libvirt's, and empty without a domain.
	Domain, DomainUUID string
	// Owner and Project are those that the domain's metadata names, or empty.
	Owner, Project string
	GPU            string
}

// clean returns the subject with clean texts.
func (s Subject) clean() Subject {
	return Subject{api.CleanText(s.VM), api.CleanText(s.Domain), api.CleanText(s.DomainUUID), api.CleanText(s.Owner), api.CleanText(s.Project), api.CleanText(s.GPU)}
}

// Sums are what a subject used in some time. The units are so large that no sum over all guests of
// a host overflows in ten years.
type Sums struct {
	GPUMicros       int64 // compute time
	Kernels         int64 // that ran to their end
	Evictions       int64
	SuspendedMicros int64
	// UnaccountedMicros is the most compute time beyond GPUMicros that there can have been while no
	// daemon ran.
	UnaccountedMicros int64
	MemoryKiBSeconds  int64 // GPU memory times how long the guest had it
	// EnergyMillijoules is the GPU's power times the guest's compute time, as far as the GPU tells
	// its power. EnergyKnown reports whether it told it in any of the time.
	EnergyMillijoules int64
	EnergyKnown       bool
}

// Add returns the sum of two sums.
func (a Sums) Add(b Sums) Sums {
	return Sums{
		GPUMicros: addClamped(a.GPUMicros, b.GPUMicros), Kernels: addClamped(a.Kernels, b.Kernels), Evictions: addClamped(a.Evictions, b.Evictions),
		SuspendedMicros: addClamped(a.SuspendedMicros, b.SuspendedMicros), MemoryKiBSeconds: addClamped(a.MemoryKiBSeconds, b.MemoryKiBSeconds),
		UnaccountedMicros: addClamped(a.UnaccountedMicros, b.UnaccountedMicros),
		EnergyMillijoules: addClamped(a.EnergyMillijoules, b.EnergyMillijoules), EnergyKnown: a.EnergyKnown || b.EnergyKnown,
	}
}

// addClamped returns the sum of two numbers that are not negative, or the largest number.
func addClamped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// zero reports whether nothing was used.
func (a Sums) zero() bool { a.EnergyKnown = false; return a == Sums{} }

// GPUTime returns the compute time.
func (a Sums) GPUTime() time.Duration {
	return time.Duration(min(a.GPUMicros, math.MaxInt64/1000)) * time.Microsecond
}

// Sample is what is known of a guest at one instant.
type Sample struct {
	// Life distinguishes the guest from every other, also from an earlier one of its name.
	Life string
	// Began is when the guest's process began, as time since the host's boot.
	Began   time.Duration
	Subject Subject
	// The sums since the guest's beginning. None goes back.
	Used, Suspended, Unaccounted time.Duration
	Kernels, Evictions           uint64
	// MemoryBytes is the GPU memory that it has now.
	MemoryBytes uint64
	// Watts is the power that its GPU draws now, or 0 if that is not known.
	Watts float64
}
