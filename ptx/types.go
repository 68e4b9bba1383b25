package ptx

// Space is a state space (§5.1): the kind of memory of a variable.
type Space uint8

// The state spaces.
const (
	NoSpace Space = iota
	RegSpace
	SregSpace
	ConstSpace
	GlobalSpace
	LocalSpace
	ParamSpace
	SharedSpace
	TexSpace
)

var spaceNames = [...]string{"", "reg", "sreg", "const", "global", "local", "param", "shared", "tex"}

// String returns the space as PTX writes it, without its dot.
func (s Space) String() string { return spaceNames[s] }

// ParseSpace returns the space called name, without its dot.
func ParseSpace(name string) (Space, bool) {
	for i, n := range spaceNames {
		if n == name && i > 0 {
			return Space(i), true
		}
	}
	return NoSpace, false
}

// Linking is the visibility of a name at module scope for other modules (§11.6).
type Linking uint8

// The linking directives; Internal is no directive.
const (
	Internal Linking = iota
	Extern
	Visible
	Weak
	Common
)

var linkingNames = [...]string{"", "extern", "visible", "weak", "common"}

// String returns the directive as PTX writes it, without its dot; "" for Internal.
func (l Linking) String() string { return linkingNames[l] }

// TypeClass is the family of a type.
type TypeClass uint8

// The classes of types.
const (
	Untyped   TypeClass = iota // bits: b8 … b128
	Unsigned                   // u8 … u64
	Signed                     // s8 … s64
	Float                      // f16, bf16, tf32, f32, f64 and the 8-, 6- and 4-bit formats
	Predicate                  // pred
	Opaque                     // texref, samplerref, surfref
)

// Type is a scalar or packed type, of a variable or as an instruction's modifier.
type Type uint8

// The types of PTX ISA 9.0.
const (
	NoType Type = iota
	B8
	B16
	B32
	B64
	B128
	U8
	U16
	U32
	U64
	S8
	S16
	S32
	S64
	F16
	F32
	F64
	F16x2
	F32x2
	BF16
	BF16x2
	TF32
	U16x2
	S16x2
	Pred1
	E4M3
	E5M2
	E4M3x2
	E5M2x2
	E4M3x4
	E5M2x4
	E2M3
	E3M2
	E2M1
	E2M3x2
	E3M2x2
	E2M1x2
	E2M3x4
	E3M2x4
	E2M1x4
	UE8M0x2
	UE4M3x2
	B4
	U4
	S4
	B1
	TexRef
	SamplerRef
	SurfRef
	typeCount
)

type typeInfo struct {
	name  string
	bits  uint8
	lanes uint8
	class TypeClass
}

var typeInfos = [typeCount]typeInfo{
	NoType:     {"", 0, 0, Untyped},
	B8:         {"b8", 8, 1, Untyped},
	B16:        {"b16", 16, 1, Untyped},
	B32:        {"b32", 32, 1, Untyped},
	B64:        {"b64", 64, 1, Untyped},
	B128:       {"b128", 128, 1, Untyped},
	U8:         {"u8", 8, 1, Unsigned},
	U16:        {"u16", 16, 1, Unsigned},
	U32:        {"u32", 32, 1, Unsigned},
	U64:        {"u64", 64, 1, Unsigned},
	S8:         {"s8", 8, 1, Signed},
	S16:        {"s16", 16, 1, Signed},
	S32:        {"s32", 32, 1, Signed},
	S64:        {"s64", 64, 1, Signed},
	F16:        {"f16", 16, 1, Float},
	F32:        {"f32", 32, 1, Float},
	F64:        {"f64", 64, 1, Float},
	F16x2:      {"f16x2", 32, 2, Float},
	F32x2:      {"f32x2", 64, 2, Float},
	BF16:       {"bf16", 16, 1, Float},
	BF16x2:     {"bf16x2", 32, 2, Float},
	TF32:       {"tf32", 32, 1, Float},
	U16x2:      {"u16x2", 32, 2, Unsigned},
	S16x2:      {"s16x2", 32, 2, Signed},
	Pred1:      {"pred", 1, 1, Predicate},
	E4M3:       {"e4m3", 8, 1, Float},
	E5M2:       {"e5m2", 8, 1, Float},
	E4M3x2:     {"e4m3x2", 16, 2, Float},
	E5M2x2:     {"e5m2x2", 16, 2, Float},
	E4M3x4:     {"e4m3x4", 32, 4, Float},
	E5M2x4:     {"e5m2x4", 32, 4, Float},
	E2M3:       {"e2m3", 6, 1, Float},
	E3M2:       {"e3m2", 6, 1, Float},
	E2M1:       {"e2m1", 4, 1, Float},
	E2M3x2:     {"e2m3x2", 16, 2, Float},
	E3M2x2:     {"e3m2x2", 16, 2, Float},
	E2M1x2:     {"e2m1x2", 8, 2, Float},
	E2M3x4:     {"e2m3x4", 32, 4, Float},
	E3M2x4:     {"e3m2x4", 32, 4, Float},
	E2M1x4:     {"e2m1x4", 16, 4, Float},
	UE8M0x2:    {"ue8m0x2", 16, 2, Float},
	UE4M3x2:    {"ue4m3x2", 16, 2, Float},
	B4:         {"b4", 4, 1, Untyped},
	U4:         {"u4", 4, 1, Unsigned},
	S4:         {"s4", 4, 1, Signed},
	B1:         {"b1", 1, 1, Untyped},
	TexRef:     {"texref", 64, 1, Opaque},
	SamplerRef: {"samplerref", 64, 1, Opaque},
	SurfRef:    {"surfref", 64, 1, Opaque},
}

var typesByName = func() map[string]Type {
	m := make(map[string]Type, typeCount)
	for t := NoType + 1; t < typeCount; t++ {
		m[typeInfos[t].name] = t
	}
	return m
}()

// ParseType returns the type called name, without its dot: "f32", for declarations and
// instructions' modifiers.
func ParseType(name string) (Type, bool) {
	t, ok := typesByName[name]
	return t, ok
}

// String returns the type as PTX writes it, without its dot.
func (t Type) String() string { return typeInfos[t].name }

// Bits returns the type's width in bits: 1 for a predicate, 64 for an opaque handle.
func (t Type) Bits() int { return int(typeInfos[t].bits) }

// Size returns the number of bytes of a value in memory.
func (t Type) Size() int { return (int(typeInfos[t].bits) + 7) / 8 }

// Lanes returns how many values a packed type holds; 1 for a scalar.
func (t Type) Lanes() int { return int(typeInfos[t].lanes) }

// Class returns the type's class.
func (t Type) Class() TypeClass { return typeInfos[t].class }
