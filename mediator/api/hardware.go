package api

// Hardware is what NVIDIA's driver says of a GPU that it drives. What is nil or
// empty it does not say, or not any more: see Problem.
type Hardware struct {
	UUID string `json:"uuid"` // GPU-…
	// PCI is the GPU's address, 0000:17:00.0.
	PCI string `json:"pci,omitempty"`
	// Driver is the driver's version, and CUDA the newest that it has, 13.0.
	Driver string `json:"driver,omitempty"`
	CUDA   string `json:"cuda,omitempty"`
	// MIG and Persistence are on or off; ComputeMode is default,
	// exclusive-process or prohibited.
	MIG         string `json:"mig,omitempty"`
	Persistence string `json:"persistence,omitempty"`
	ComputeMode string `json:"compute_mode,omitempty"`
	// Problem is why the rest is not known, or not any more. The GPU may be well.
	Problem string `json:"problem,omitempty"`
	// Warnings are what an operator should change, or know.
	Warnings []string `json:"warnings,omitempty"`

	TemperatureCelsius *float64 `json:"temperature_celsius,omitempty"`
	PowerWatts         *float64 `json:"power_watts,omitempty"`
	PowerLimitWatts    *float64 `json:"power_limit_watts,omitempty"`
	SMClockHertz       *float64 `json:"sm_clock_hertz,omitempty"`
	MemoryClockHertz   *float64 `json:"memory_clock_hertz,omitempty"`
	// MemoryUsedBytes is everybody's, the driver's own included.
	MemoryUsedBytes *uint64 `json:"memory_used_bytes,omitempty"`
	// BusyRatio is the driver's, over its own sampling time; [GPU] has
	// accounting's. MemoryBusyRatio is the part of it in which memory was used.
	BusyRatio       *float64 `json:"driver_busy_ratio,omitempty"`
	MemoryBusyRatio *float64 `json:"memory_busy_ratio,omitempty"`
	// Throttled are the reasons for which the clocks are low, but for idleness.
	Throttled []string `json:"throttled,omitempty"`
	// ECCCorrected and ECCUncorrected count memory errors since the driver was
	// loaded.
	ECCCorrected   *uint64 `json:"ecc_corrected,omitempty"`
	ECCUncorrected *uint64 `json:"ecc_uncorrected,omitempty"`
	// Xids are the errors that the driver reported since the daemon started.
	Xids []XidCount `json:"xids,omitempty"`
}

// XidCount is how often an error was reported.
type XidCount struct {
	Xid   uint64 `json:"xid"`
	Count uint64 `json:"count"`
	// Text says what happened, and what to do about it where there is something.
	Text string `json:"text"`
}
