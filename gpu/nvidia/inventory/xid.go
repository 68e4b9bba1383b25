package inventory

import "fmt"

// Xid describes an error that the driver reports, from NVIDIA's "Analyzing Xid Errors with the Xid
// Catalog" (for Ampere and newer): its immediate action, and its linkage with Xid 154.
type Xid struct {
	Number uint64
	// What is a description of the error.
	What string
	// Ends reports whether the GPU can't be used after it, whatever caused it. Other errors affect
	// one context, or are warnings.
	Ends bool
	// Told reports whether the driver itself reports the recovery that it wants after the error,
	// since R575 at the latest, as [Sample].Recovery. That takes precedence over Ends.
	Told bool
	// Do is an operator's action, or empty if none is needed.
	Do string
}

// An operator's actions on a GPU.
const (
	doReset  = "stop vgpud and what else uses the GPU, `nvidia-smi --gpu-reset`, start vgpud; where it comes again, have the GPU checked"
	doReboot = "reboot the host; where it comes again, have the GPU and its slot checked"
	doWatch  = "where it comes again, have the GPU checked"
	doPower  = "check the GPU's power connectors"
)

var xids = map[uint64]Xid{
	8:   {What: "a channel made no progress"},
	11:  {What: "a channel's commands are corrupt"},
	13:  {What: "a kernel broke a rule of the compute engine: a bad address or instruction"},
	31:  {What: "a kernel or copy used an address that is not mapped"},
	32:  {What: "a channel's commands are corrupt"},
	38:  {What: "the compute engine's firmware waited in vain for a context"},
	39:  {What: "a copy engine failed in a context"},
	40:  {What: "a copy engine failed in a context"},
	41:  {What: "a copy engine failed in a context"},
	43:  {What: "a channel was reset after an error of its own"},
	44:  {What: "the compute engine failed while it switched contexts"},
	45:  {What: "a context was taken away, at its process's end or after an earlier error"},
	46:  {What: "the GPU stopped processing", Ends: true, Do: doReset},
	48:  {What: "a memory error of two bits, which can't be corrected", Ends: true, Told: true, Do: doReset},
	54:  {What: "the GPU has too little power, and is slow", Do: doPower},
	62:  {What: "the power management's controller halted", Ends: true, Told: true, Do: doReset},
	63:  {What: "a row of memory is replaced at the next reset"},
	64:  {What: "a row of memory can't be replaced", Ends: true, Told: true, Do: doReset},
	69:  {What: "a context used a class of the compute engine wrongly"},
	74:  {What: "an error on NVLink", Told: true, Do: doWatch},
	79:  {What: "the GPU has fallen off the bus", Ends: true, Told: true, Do: doReboot},
	92:  {What: "many memory errors of one bit, which were corrected", Do: doWatch},
	94:  {What: "a memory error that only the context met which used the memory", Told: true},
	95:  {What: "a memory error that may have spoiled any context's data", Ends: true, Told: true, Do: doReset},
	109: {What: "a context did not leave the compute engine in time", Ends: true, Told: true, Do: doReset},
	110: {What: "the GPU's security processor failed", Ends: true, Told: true, Do: doReset},
	119: {What: "the GPU's system processor (GSP) does not answer", Ends: true, Do: doReset},
	120: {What: "the GPU's system processor (GSP) failed", Ends: true, Told: true, Do: doReset},
	136: {What: "an NVLink could not be trained", Ends: true, Told: true, Do: doReset},
	137: {What: "a context used another GPU's memory wrongly over NVLink"},
	140: {What: "a memory error that was not recovered from", Ends: true, Do: doReset},
	143: {What: "the GPU could not be initialised", Ends: true, Told: true, Do: doReset},
	154: {What: "the driver wants something else done to the GPU than before", Told: true}, // a sample has the recovery
	156: {What: "a part of the GPU that failed is replaced at the next reset", Ends: true, Told: true, Do: doReset},
	158: {What: "the GPU stopped answering", Ends: true, Do: doReset},
}

// LookUp returns the description of an Xid. An unknown Xid ends nothing.
func LookUp(number uint64) Xid {
	x, ok := xids[number]
	if !ok {
		x.What, x.Do = "not known to this version", "see NVIDIA's catalogue of Xid errors"
	}
	x.Number = number
	return x
}

// String returns the number and the description.
func (x Xid) String() string {
	s := fmt.Sprintf("Xid %d: %s", x.Number, x.What)
	if x.Do != "" {
		s += ": " + x.Do
	}
	return s
}
