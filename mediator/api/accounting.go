package api

// What a GPU can be watched by: [GPU].AccountingSource, and in the configuration.
const (
	// SourceAuto is registers where they can be read, else events, else launches where the
	// GPU has neither. It is in the configuration alone.
	SourceAuto = "auto"
	// SourceRegisters is the GPU's status registers, polled.
	SourceRegisters = "registers"
	// SourceEvents is the GPU's own record of its context switches.
	SourceEvents = "events"
	// SourceLaunches is what the guests' own processes say of when launches began and
	// ended, by the GPU's stamps: nobody else is asked. Where launches of several guests
	// overlap, each is taken to have had an equal part of the time.
	SourceLaunches = "launches"
)
