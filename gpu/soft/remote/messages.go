package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/texture"
)

const (
	// protocol is the version of the messages. A server accepts only its own version: both ends are
	// of one release.
	protocol = 2
	// maxPacket limits the size of a request and of a reply. A longer reply goes through a file.
	maxPacket = 64 << 10
	// maxFiles limits the descriptors of a packet.
	maxFiles = 2
	// maxImage limits the size of a module's source and of a reply in a file.
	maxImage = 64 << 20
)

// The operations.
const (
	opHello        = "hello"
	opRegisters    = "registers"
	opUsage        = "usage"
	opNewContext   = "new-context"
	opCloseContext = "close-context"
	opAlloc        = "alloc"
	opFree         = "free"
	opMemory       = "memory"
	opLoad         = "load"
	opUnload       = "unload"
	opGlobal       = "global"
	opNewChannel   = "new-channel"
	opCloseChannel = "close-channel"
	opPrintf       = "printf"
	opFault        = "fault"
	opEnable       = "enable"
	opSlice        = "slice"
	opTimeLimit    = "time-limit"
	opControl      = "control"
	opLimit        = "limit"
	opSetLimit     = "set-limit"
	opTexture      = "texture"
	opDropTexture  = "drop-texture"
	opReference    = "reference"
	opMapHost      = "map-host"
	opAllocAt      = "alloc-at"
	opMapEvents    = "map-events"
	opRegister     = "register-events"
	opUnregister   = "unregister-events"
	opHoldEvents   = "hold-events"
	opEventCounts  = "event-counts"
)

// request is a request of a program. Each operation uses some of the fields.
type request struct {
	Op          string        `json:"op"`
	Version     int           `json:"version,omitempty"`
	Context     uint32        `json:"context,omitempty"`
	ID          uint32        `json:"id,omitempty"` // of a module or channel
	Label       string        `json:"label,omitempty"`
	MemoryLimit uint64        `json:"memory_limit,omitempty"`
	TimeLimit   time.Duration `json:"time_limit,omitempty"`
	Size        uint64        `json:"size,omitempty"`
	Ptr         gpu.Ptr       `json:"ptr,omitempty"`
	Offset      uint64        `json:"offset,omitempty"`
	Name        string        `json:"name,omitempty"`
	Max         int           `json:"max,omitempty"`
	On          bool          `json:"on,omitempty"`
	Slice       time.Duration `json:"slice,omitempty"`
	Limit       gpu.Limit     `json:"limit,omitempty"`
	// Texture is sent without its border, whose floats JSON can't always hold.
	Texture *texture.Texture `json:"texture,omitempty"`
	Border  [4]uint32        `json:"border,omitzero"`
	Handle  uint64           `json:"handle,omitempty"`
	// Events is an event kernel to be registered; ID is the number of one to be unregistered.
	Events *soft.EventKernel `json:"events,omitempty"`
}

// reply is the answer.
type reply struct {
	Error      *remoteError     `json:"error,omitempty"`
	Properties *gpu.Properties  `json:"properties,omitempty"`
	Usage      *soft.Usage      `json:"usage,omitempty"`
	Context    uint32           `json:"context,omitempty"`
	Group      gpu.GroupID      `json:"group,omitempty"`
	Ptr        gpu.Ptr          `json:"ptr,omitempty"`
	Size       uint64           `json:"size,omitempty"`
	Offset     uint64           `json:"offset,omitempty"`
	Free       uint64           `json:"free,omitempty"`
	ID         uint32           `json:"id,omitempty"`
	Module     *soft.ModuleInfo `json:"module,omitempty"`
	Text       []byte           `json:"text,omitempty"`
	Handle     uint64           `json:"handle,omitempty"`
	Surface    bool             `json:"surface,omitempty"`
	Gone       bool             `json:"gone,omitempty"`
	Events     soft.EventCounts `json:"events,omitzero"`
	// InFile means that the actual reply is in the file that came with this one.
	InFile bool `json:"in_file,omitempty"`
}

// remoteError is an error that crosses the socket: its text, the corresponding error of package
// gpu, and the fault.
type remoteError struct {
	Text  string     `json:"text"`
	Kind  string     `json:"kind,omitempty"`
	Fault *gpu.Fault `json:"fault,omitempty"`
}

// kinds are the errors that a program may test for.
var kinds = []struct {
	name string
	err  error
}{
	{"full", gpu.ErrFull}, // before the errors that it wraps
	{"out-of-memory", gpu.ErrOutOfMemory},
	{"invalid-pointer", gpu.ErrInvalidPtr},
	{"invalid-module", gpu.ErrInvalidModule},
	{"unsupported", gpu.ErrUnsupported},
	{"not-found", gpu.ErrNotFound},
	{"invalid-launch", gpu.ErrInvalidLaunch},
	{"invalid-limit", gpu.ErrInvalidLimit},
	{"invalid-texture", gpu.ErrInvalidTexture},
	{"invalid-copy", gpu.ErrInvalidCopy},
	{"poisoned", gpu.ErrPoisoned},
	{"time-limit", gpu.ErrTimeLimit},
	{"lost", gpu.ErrLost},
}

// maxErrorText limits an error's text, since an error of a module quotes its source.
const maxErrorText = 8 << 10

func toRemote(err error) *remoteError {
	if err == nil {
		return nil
	}
	r := &remoteError{Text: err.Error()}
	if len(r.Text) > maxErrorText {
		r.Text = r.Text[:maxErrorText] + "…"
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			r.Kind = k.name
			break
		}
	}
	errors.As(err, &r.Fault)
	return r
}

// Error returns the text from the other end.
func (r *remoteError) Error() string { return r.Text }

// Unwrap returns the corresponding error of package gpu, if any.
func (r *remoteError) Unwrap() error {
	if r.Fault != nil {
		return r.Fault
	}
	for _, k := range kinds {
		if k.name == r.Kind {
			return k.err
		}
	}
	return nil
}

// result converts err for a program: a fault becomes a fault.
func (r *remoteError) result() error {
	switch {
	case r == nil:
		return nil
	case r.Fault != nil:
		return r.Fault
	}
	return r
}

func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	return b, nil
}

func decode(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode a message: %w", err)
	}
	return nil
}
