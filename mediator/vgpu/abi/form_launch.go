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

// Encode writes the payload and zeroes the rest of the entry.
func (x Module) Encode(e *Entry) {
	e.putU64(16, x.Image.Offset)
	e.putU64(24, x.Image.Size)
	e.putU64(32, x.Log)
	e.putU32(40, x.LogBytes)
	e.putU32(44, uint32(x.Format))
	e.putU32(48, x.MaxRegisters)
	e.putU32(52, x.Flags)
	e.clearFrom(56)
}

// DecodeModule reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeModule(e *Entry) (Module, error) {
	x := Module{
		Image:        Window{e.u64(16), e.u64(24)},
		Log:          e.u64(32),
		LogBytes:     e.u32(40),
		Format:       Format(e.u32(44)),
		MaxRegisters: e.u32(48),
		Flags:        e.u32(52),
	}
	if !e.zeroFrom(56) {
		return x, errReserved
	}
	return x, nil
}

// Lookup is the payload of [OpFunction] and [OpGlobal]. The name lies in the
// continuation entries when there are any, else in the window at Name.
type Lookup struct {
	Module    uint64
	Name      uint64 // offset in BAR2; zero when inline
	NameBytes uint32 // without a final NUL
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Lookup) Encode(e *Entry) {
	e.putU64(16, x.Module)
	e.putU64(24, x.Name)
	e.putU32(32, x.NameBytes)
	e.clearFrom(36)
}

// DecodeLookup reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeLookup(e *Entry) (Lookup, error) {
	x := Lookup{
		Module:    e.u64(16),
		Name:      e.u64(24),
		NameBytes: e.u32(32),
	}
	if !e.zeroFrom(36) {
		return x, errReserved
	}
	return x, nil
}

// Launch is the payload of [OpLaunch] and [OpEventKernelRegister].
//
// Its data is the attribute records ([Header].Aux of them, [EntrySize] bytes each,
// see [Attribute]), then the parameters as the kernel's parameter space holds them.
// It lies in the continuation entries when there are any, else in BAR2 at Data.
type Launch struct {
	Function    uint64    // as [OpFunction] answered
	Grid        [3]uint32 // blocks
	Block       [3]uint32 // threads
	SharedBytes uint32    // dynamic shared memory of a block
	ParamBytes  uint32    // size of the parameters
	Data        uint64    // offset in BAR2; zero when inline
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Launch) Encode(e *Entry) {
	e.putU64(16, x.Function)
	e.putU32(24, x.Grid[0])
	e.putU32(28, x.Grid[1])
	e.putU32(32, x.Grid[2])
	e.putU32(36, x.Block[0])
	e.putU32(40, x.Block[1])
	e.putU32(44, x.Block[2])
	e.putU32(48, x.SharedBytes)
	e.putU32(52, x.ParamBytes)
	e.putU64(56, x.Data)
}

// DecodeLaunch reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeLaunch(e *Entry) (Launch, error) {
	x := Launch{
		Function:    e.u64(16),
		Grid:        [3]uint32{e.u32(24), e.u32(28), e.u32(32)},
		Block:       [3]uint32{e.u32(36), e.u32(40), e.u32(44)},
		SharedBytes: e.u32(48),
		ParamBytes:  e.u32(52),
		Data:        e.u64(56),
	}
	return x, nil
}

// Trigger is the payload of [OpEventKernelTrigger]. The parameters, when ParamBytes
// is not zero, replace those of the parameter set first; they lie as in [Launch].
type Trigger struct {
	ID         uint64 // as [OpEventKernelRegister] answered
	Set        uint32 // parameter set
	ParamBytes uint32
	Data       uint64 // offset in BAR2; zero when inline
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Trigger) Encode(e *Entry) {
	e.putU64(16, x.ID)
	e.putU32(24, x.Set)
	e.putU32(28, x.ParamBytes)
	e.putU64(32, x.Data)
	e.clearFrom(40)
}

// DecodeTrigger reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeTrigger(e *Entry) (Trigger, error) {
	x := Trigger{
		ID:         e.u64(16),
		Set:        e.u32(24),
		ParamBytes: e.u32(28),
		Data:       e.u64(32),
	}
	if !e.zeroFrom(40) {
		return x, errReserved
	}
	return x, nil
}

// Occupancy is the payload of [OpOccupancy].
type Occupancy struct {
	Function     uint64
	SharedBytes  uint64 // dynamic shared memory of a block
	BlockThreads uint32
	Flags        uint32 // 0 in this version
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Occupancy) Encode(e *Entry) {
	e.putU64(16, x.Function)
	e.putU64(24, x.SharedBytes)
	e.putU32(32, x.BlockThreads)
	e.putU32(36, x.Flags)
	e.clearFrom(40)
}

// DecodeOccupancy reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeOccupancy(e *Entry) (Occupancy, error) {
	x := Occupancy{
		Function:     e.u64(16),
		SharedBytes:  e.u64(24),
		BlockThreads: e.u32(32),
		Flags:        e.u32(36),
	}
	if !e.zeroFrom(40) {
		return x, errReserved
	}
	return x, nil
}

// Elapsed is the payload of [OpEventElapsed].
type Elapsed struct {
	Start uint64 // event
	End   uint64 // event
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Elapsed) Encode(e *Entry) {
	e.putU64(16, x.Start)
	e.putU64(24, x.End)
	e.clearFrom(32)
}

// DecodeElapsed reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeElapsed(e *Entry) (Elapsed, error) {
	x := Elapsed{
		Start: e.u64(16),
		End:   e.u64(24),
	}
	if !e.zeroFrom(32) {
		return x, errReserved
	}
	return x, nil
}
