package simt

const lanes = 32

// program is a kernel compiled together with all that it can call.
type program struct{}
