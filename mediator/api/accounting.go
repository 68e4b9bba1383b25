package api

// The sources of accounting, in [GPU].AccountingSource and the configuration.
const (
	// SourceAuto is registers if they can be read, or else events, or else, if the GPU has neither,
	// launches. It is used in the configuration only.
	SourceAuto = "auto"
	// SourceRegisters polls the GPU's status registers.
	SourceRegisters = "registers"
	// SourceEvents is the GPU's own record of its context switches.
	SourceEvents = "events"
	// SourceLaunches is the reports of guests' own processes on when launches began and ended, by
	// the GPU's timestamps, without any check. Where launches of several guests overlap, the time
	// is divided equally.
	SourceLaunches = "launches"
)
