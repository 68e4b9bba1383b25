package api

// Hardware is the description of a GPU by NVIDIA's driver. Fields that are nil or empty are not known,
// or not any more: see Problem.
type Hardware struct {
	UUID string `json:"uuid"` // GPU-…
	// PCI is the GPU's address, 0000:17:00.0.
	PCI string `json:"pci,omitempty"`
	// Driver is the driver's version, and CUDA the newest CUDA version that it supports, such as
	// 13.0.
	Driver string `json:"driver,omitempty"`
	CUDA   string `json:"cuda,omitempty"`
	// MIG and Persistence are on or off; ComputeMode is default, exclusive-process or prohibited.
	MIG         string `json:"mig,omitempty"`
	Persistence string `json:"persistence,omitempty"`
	ComputeMode string `json:"compute_mode,omitempty"`
	// Problem is the reason why other fields are unknown or out of date. The GPU itself may be
	// healthy.
	Problem string `json:"problem,omitempty"`
	// Warnings are for the operator to act on or know.
	Warnings []string `json:"warnings,omitempty"`

	TemperatureCelsius *float64 `json:"temperature_celsius,omitempty"`
	PowerWatts         *float64 `json:"power_watts,omitempty"`
	PowerLimitWatts    *float64 `json:"power_limit_watts,omitempty"`
	SMClockHertz       *float64 `json:"sm_clock_hertz,omitempty"`
	MemoryClockHertz   *float64 `json:"memory_clock_hertz,omitempty"`
	// MemoryUsedBytes is the use by all processes and the driver.
	MemoryUsedBytes *uint64 `json:"memory_used_bytes,omitempty"`
	// BusyRatio is the driver's value over its own sampling time; [GPU] has accounting's.
	// MemoryBusyRatio is the part of that time in which memory was used.
	BusyRatio       *float64 `json:"driver_busy_ratio,omitempty"`
	MemoryBusyRatio *float64 `json:"memory_busy_ratio,omitempty"`
	// Throttled lists the reasons for low clocks, other than idleness.
	Throttled []string `json:"throttled,omitempty"`
	// ECCCorrected and ECCUncorrected count memory errors since the driver was loaded.
	ECCCorrected   *uint64 `json:"ecc_corrected,omitempty"`
	ECCUncorrected *uint64 `json:"ecc_uncorrected,omitempty"`
	// Xids are the errors that the driver reported since the daemon started.
	Xids []XidCount `json:"xids,omitempty"`
}

// XidCount is how often an error was reported.
type XidCount struct {
	Xid   uint64 `json:"xid"`
	Count uint64 `json:"count"`
	// Text says what happened, and what to do about it, if anything.
	Text string `json:"text"`
}
