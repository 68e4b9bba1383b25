package abi

import "fmt"

// An Opcode says which command an entry is.
type Opcode uint16

// The commands, in groups of sixteen with room to grow. Zeroed memory is never a command.
// docs/device.md says what each takes and answers.
const (
	OpInvalid Opcode = 0x00
	OpNop     Opcode = 0x01 // nothing; completes in order
	OpFence   Opcode = 0x02 // completes when all earlier commands of the channel have

	OpMemAlloc Opcode = 0x10 // zeroed GPU memory
	OpMemFree  Opcode = 0x11
	OpMemInfo  Opcode = 0x12 // free and total memory of this guest
	OpMemRange Opcode = 0x13 // base and size of the allocation that holds an address

	OpWindowAddress Opcode = 0x14 // GPU address of a staging window

	OpCopyIn  Opcode = 0x20 // staging window to GPU memory
	OpCopyOut Opcode = 0x21 // GPU memory to staging window
	OpCopy    Opcode = 0x22 // GPU memory to GPU memory
	OpCopy3D  Opcode = 0x23 // pitched box, any of the three directions
	OpSet     Opcode = 0x28 // fill with an 8-, 16- or 32-bit value, 1-D or 2-D

	OpModuleLoad   Opcode = 0x30
	OpModuleUnload Opcode = 0x31
	OpGlobal       Opcode = 0x32 // address and size of a module's global by name

	OpFunction             Opcode = 0x38 // a kernel of a module by name
	OpFunctionAttribute    Opcode = 0x39
	OpFunctionSetAttribute Opcode = 0x3a
	OpFunctionParam        Opcode = 0x3b // offset and size of one parameter
	OpOccupancy            Opcode = 0x3c // resident blocks of an SM

	OpLaunch Opcode = 0x40

	OpEventCreate  Opcode = 0x50
	OpEventDestroy Opcode = 0x51
	OpEventRecord  Opcode = 0x52 // completes with the GPU's time
	OpEventWait    Opcode = 0x53 // later commands of this channel wait for the event
	OpEventQuery   Opcode = 0x54
	OpEventElapsed Opcode = 0x55 // nanoseconds between two recorded events
	OpEventTrigger Opcode = 0x56 // raise a triggered event's value
	OpEventAwait   Opcode = 0x57 // later commands of this channel wait for a triggered event's value

	OpEventKernelRegister   Opcode = 0x60 // EDGE §III.E: keep a launch and its queue by number
	OpEventKernelUnregister Opcode = 0x61
	OpEventKernelQuery      Opcode = 0x62 // how many events it has had

	OpLimit            Opcode = 0x70 // read a limit of the context
	OpSetLimit         Opcode = 0x71
	OpPrintfDrain      Opcode = 0x72 // what kernels printed, into a window
	OpLastFault        Opcode = 0x73 // text of the fault that poisoned the context, into a window
	OpDeviceAttribute  Opcode = 0x78
	OpDeviceName       Opcode = 0x79 // the GPU's name, into a window
	OpTimestamp        Opcode = 0x7a // the GPU's clock now
	OpDeviceAttributes Opcode = 0x7b // all attributes, into a window

	OpArrayCreate    Opcode = 0x80 // a CUDA array of zeros
	OpArrayDestroy   Opcode = 0x81
	OpArrayCopy      Opcode = 0x82 // between an array, and GPU memory or a staging window
	OpTextureCreate  Opcode = 0x83
	OpTextureDestroy Opcode = 0x84
	OpSurfaceCreate  Opcode = 0x85
	OpSurfaceDestroy Opcode = 0x86
	OpTextureBind    Opcode = 0x87 // a module's texture or surface variable
)

// A Form is the layout of a command's payload; many commands share one.
type Form uint8

// The forms. A decoder of the same name exists for each.
const (
	FormEmpty Form = iota
	FormHandle
	FormQuery
	FormLookup
	FormWindow
	FormAlloc
	FormTransfer
	FormCopy3D
	FormSet
	FormModule
	FormOccupancy
	FormLaunch
	FormElapsed
	FormMapping
	FormPoint
	FormArray
	FormArrayCopy
	FormTexture
	FormBinding
)

var formNames = []string{
	"Empty", "Handle", "Query", "Lookup", "Window", "Alloc", "Transfer", "Copy3D",
	"Set", "Module", "Occupancy", "Launch", "Elapsed", "Mapping", "Point",
	"Array", "ArrayCopy", "Texture", "Binding",
}

// String returns the form's name.
func (f Form) String() string { return nameOf(uint32(f), formNames, "form") }

// A Command describes one opcode.
type Command struct {
	Op      Opcode
	Name    string
	Form    Form
	Feature Features // the feature it needs; 0: always there
	Inline  bool     // continuation entries may follow
}

// Commands lists every command by opcode.
var Commands = []Command{
	{OpNop, "NOP", FormEmpty, 0, false},
	{OpFence, "FENCE", FormEmpty, 0, false},
	{OpMemAlloc, "MEM_ALLOC", FormAlloc, 0, false},
	{OpMemFree, "MEM_FREE", FormHandle, 0, false},
	{OpMemInfo, "MEM_INFO", FormEmpty, 0, false},
	{OpMemRange, "MEM_RANGE", FormHandle, 0, false},
	{OpWindowAddress, "WINDOW_ADDRESS", FormMapping, FeatureWindowAddresses, false},
	{OpCopyIn, "COPY_IN", FormTransfer, 0, false},
	{OpCopyOut, "COPY_OUT", FormTransfer, 0, false},
	{OpCopy, "COPY", FormTransfer, 0, false},
	{OpCopy3D, "COPY_3D", FormCopy3D, FeatureCopy3D, false},
	{OpSet, "SET", FormSet, 0, false},
	{OpModuleLoad, "MODULE_LOAD", FormModule, 0, false},
	{OpModuleUnload, "MODULE_UNLOAD", FormHandle, 0, false},
	{OpGlobal, "GLOBAL", FormLookup, FeatureGlobals, true},
	{OpFunction, "FUNCTION", FormLookup, 0, true},
	{OpFunctionAttribute, "FUNCTION_ATTRIBUTE", FormQuery, FeatureFunctions, false},
	{OpFunctionSetAttribute, "FUNCTION_SET_ATTRIBUTE", FormQuery, FeatureFunctions, false},
	{OpFunctionParam, "FUNCTION_PARAM", FormQuery, FeatureFunctions, false},
	{OpOccupancy, "OCCUPANCY", FormOccupancy, FeatureFunctions, false},
	{OpLaunch, "LAUNCH", FormLaunch, 0, true},
	{OpEventCreate, "EVENT_CREATE", FormEmpty, FeatureEvents, false},
	{OpEventDestroy, "EVENT_DESTROY", FormHandle, FeatureEvents, false},
	{OpEventRecord, "EVENT_RECORD", FormHandle, FeatureEvents, false},
	{OpEventWait, "EVENT_WAIT", FormHandle, FeatureEvents, false},
	{OpEventQuery, "EVENT_QUERY", FormHandle, FeatureEvents, false},
	{OpEventElapsed, "EVENT_ELAPSED", FormElapsed, FeatureEvents, false},
	{OpEventTrigger, "EVENT_TRIGGER", FormPoint, FeatureTriggeredEvents, false},
	{OpEventAwait, "EVENT_AWAIT", FormPoint, FeatureTriggeredEvents, false},
	{OpEventKernelRegister, "EVENT_KERNEL_REGISTER", FormLaunch, FeatureEventKernels, true},
	{OpEventKernelUnregister, "EVENT_KERNEL_UNREGISTER", FormHandle, FeatureEventKernels, false},
	{OpEventKernelQuery, "EVENT_KERNEL_QUERY", FormHandle, FeatureEventKernels, false},
	{OpLimit, "LIMIT", FormQuery, FeatureLimits, false},
	{OpSetLimit, "SET_LIMIT", FormQuery, FeatureLimits, false},
	{OpPrintfDrain, "PRINTF_DRAIN", FormWindow, FeaturePrintf, false},
	{OpLastFault, "LAST_FAULT", FormWindow, 0, false},
	{OpDeviceAttribute, "DEVICE_ATTRIBUTE", FormQuery, 0, false},
	{OpDeviceName, "DEVICE_NAME", FormWindow, 0, false},
	{OpTimestamp, "TIMESTAMP", FormEmpty, 0, false},
	{OpDeviceAttributes, "DEVICE_ATTRIBUTES", FormWindow, FeatureIdentity, false},
	{OpArrayCreate, "ARRAY_CREATE", FormArray, FeatureTextures, false},
	{OpArrayDestroy, "ARRAY_DESTROY", FormHandle, FeatureTextures, false},
	{OpArrayCopy, "ARRAY_COPY", FormArrayCopy, FeatureTextures, false},
	{OpTextureCreate, "TEXTURE_CREATE", FormTexture, FeatureTextures, false},
	{OpTextureDestroy, "TEXTURE_DESTROY", FormHandle, FeatureTextures, false},
	{OpSurfaceCreate, "SURFACE_CREATE", FormHandle, FeatureTextures, false},
	{OpSurfaceDestroy, "SURFACE_DESTROY", FormHandle, FeatureTextures, false},
	{OpTextureBind, "TEXTURE_BIND", FormBinding, FeatureTextures, true},
}

// commandByOp maps opcodes, which are below 256, to commands.
var commandByOp = func() (t [256]*Command) {
	for i := range Commands {
		t[Commands[i].Op] = &Commands[i]
	}
	return t
}()

// Command returns the description of op, or nil when there is no such command.
func (op Opcode) Command() *Command {
	if int(op) < len(commandByOp) {
		return commandByOp[op]
	}
	return nil
}

// String returns the command's name.
func (op Opcode) String() string {
	if c := op.Command(); c != nil {
		return c.Name
	}
	return fmt.Sprintf("opcode %#x", uint16(op))
}
