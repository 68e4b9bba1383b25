package abi

// Module is the payload of [OpModuleLoad].
type Module struct {
	Image        Window // the module's bytes; PTX needs no final NUL
	Log          uint64 // offset in BAR2 for messages of the parser or compiler
	LogBytes     uint32 // room there; 0: no log
	Format       Format
	MaxRegisters uint32 // registers of a thread; 0: no bound
	Flags        uint32 // 0 in this version
}

func (x *Module) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Image.Offset)
	codeU64(c, 24, &x.Image.Size)
	codeU64(c, 32, &x.Log)
	codeU32(c, 40, &x.LogBytes)
	codeU32(c, 44, &x.Format)
	codeU32(c, 48, &x.MaxRegisters)
	codeU32(c, 52, &x.Flags)
	return c.rest(56)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Module) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeModule reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeModule(e *Entry) (x Module, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Lookup is the payload of [OpFunction] and [OpGlobal]. The name lies in the continuation entries
// when there are any, else in the window at Name.
type Lookup struct {
	Module    uint64
	Name      uint64 // offset in BAR2; zero when inline
	NameBytes uint32 // without a final NUL
}

func (x *Lookup) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Module)
	codeU64(c, 24, &x.Name)
	codeU32(c, 32, &x.NameBytes)
	return c.rest(36)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Lookup) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeLookup reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeLookup(e *Entry) (x Lookup, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Launch is the payload of [OpLaunch] and [OpEventKernelRegister].
//
// Its data is the attribute records ([Header].Aux of them, [EntrySize] bytes each, see
// [Attribute]), then the parameters as the kernel's parameter space holds them. It lies in the
// continuation entries when there are any, else in BAR2 at Data.
type Launch struct {
	Function    uint64    // as [OpFunction] answered
	Grid        [3]uint32 // blocks
	Block       [3]uint32 // threads
	SharedBytes uint32    // dynamic shared memory of a block
	ParamBytes  uint32    // size of the parameters
	Data        uint64    // offset in BAR2; zero when inline
}

func (x *Launch) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Function)
	codeU32(c, 24, &x.Grid[0])
	codeU32(c, 28, &x.Grid[1])
	codeU32(c, 32, &x.Grid[2])
	codeU32(c, 36, &x.Block[0])
	codeU32(c, 40, &x.Block[1])
	codeU32(c, 44, &x.Block[2])
	codeU32(c, 48, &x.SharedBytes)
	codeU32(c, 52, &x.ParamBytes)
	codeU64(c, 56, &x.Data)
	return true
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Launch) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeLaunch reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeLaunch(e *Entry) (x Launch, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Occupancy is the payload of [OpOccupancy].
type Occupancy struct {
	Function     uint64
	SharedBytes  uint64 // dynamic shared memory of a block
	BlockThreads uint32
	Flags        uint32 // 0 in this version
}

func (x *Occupancy) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Function)
	codeU64(c, 24, &x.SharedBytes)
	codeU32(c, 32, &x.BlockThreads)
	codeU32(c, 36, &x.Flags)
	return c.rest(40)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Occupancy) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeOccupancy reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeOccupancy(e *Entry) (x Occupancy, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Elapsed is the payload of [OpEventElapsed].
type Elapsed struct {
	Start uint64 // event
	End   uint64 // event
}

func (x *Elapsed) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Start)
	codeU64(c, 24, &x.End)
	return c.rest(32)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Elapsed) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeElapsed reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeElapsed(e *Entry) (x Elapsed, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}
