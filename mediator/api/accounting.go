package api

// What a GPU can be watched by: [GPU].AccountingSource, and in the configuration.
const (
	// SourceAuto is registers where they can be read, else events. It is in the
	// configuration alone.
	SourceAuto = "auto"
	// SourceRegisters is the GPU's status registers, polled.
	SourceRegisters = "registers"
	// SourceEvents is the GPU's own record of its context switches.
	SourceEvents = "events"
)
