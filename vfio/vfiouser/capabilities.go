package vfiouser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"syscall"
)

// Capabilities is what one end announces in VERSION. The specification has defaults for omitted
// fields.
type Capabilities struct {
	// MaxMessageFDs is the maximum number of descriptors that this end accepts in one message.
	MaxMessageFDs uint32 `json:"max_msg_fds"`
	// MaxDataBytes is the maximum size of the data of one access.
	MaxDataBytes uint64 `json:"max_data_xfer_size"`
	// MaxDMAMaps is the maximum number of mappings that are valid at once.
	MaxDMAMaps uint64 `json:"max_dma_maps"`
	// PageSizes is a bit mask of the page sizes that DMA mappings may have.
	PageSizes uint64 `json:"pgsizes"`
	// WriteMultiple means that this end understands REGION_WRITE_MULTI.
	WriteMultiple bool `json:"write_multiple"`
}

// ownCapabilities is what both ends of this package announce.
var ownCapabilities = Capabilities{
	MaxMessageFDs: MaxMessageFDs,
	MaxDataBytes:  MaxDataBytes,
	MaxDMAMaps:    65535,
	PageSizes:     4096,
	WriteMultiple: true,
}

// defaultCapabilities applies to a peer that announces nothing.
var defaultCapabilities = Capabilities{
	MaxMessageFDs: 1,
	MaxDataBytes:  MaxDataBytes,
	MaxDMAMaps:    65535,
	PageSizes:     4096,
}

// maxVersionBytes bounds a VERSION payload; QEMU's has 198 bytes.
const maxVersionBytes = 16 << 10

type versionData struct {
	Capabilities *Capabilities `json:"capabilities"`
}

// appendVersion appends the payload of a VERSION message.
func appendVersion(b []byte, caps Capabilities) ([]byte, error) {
	var v [SizeofVersion]byte
	(&Version{Major: VersionMajor, Minor: VersionMinor}).MarshalBytes(v[:])
	data, err := json.Marshal(versionData{&caps})
	if err != nil {
		return nil, fmt.Errorf("encode capabilities: %w", err)
	}
	b = append(b, v[:]...)
	b = append(b, data...)
	return append(b, 0), nil
}

// parseVersion reads the payload of a VERSION message. Versions are compatible if their major
// numbers are equal; the lower minor number is then used, and there is only one yet.
func parseVersion(p []byte) (Capabilities, error) {
	caps := defaultCapabilities
	if len(p) < SizeofVersion || len(p) > maxVersionBytes {
		return caps, versionError("payload of %d bytes", len(p))
	}
	var v Version
	v.UnmarshalBytes(p)
	if v.Major != VersionMajor {
		return caps, versionError("version %d.%d, want %d.x", v.Major, v.Minor, VersionMajor)
	}
	data := p[SizeofVersion:]
	if len(data) == 0 {
		return caps, nil
	}
	if data[len(data)-1] != 0 {
		return caps, versionError("capabilities do not end in NUL")
	}
	data = data[:len(data)-1]
	if bytes.IndexByte(data, 0) >= 0 {
		return caps, versionError("NUL within capabilities")
	}
	if err := json.Unmarshal(data, &versionData{&caps}); err != nil {
		return caps, versionError("capabilities: %v", err)
	}
	return caps, nil
}

func versionError(format string, args ...any) error {
	return fmt.Errorf("VERSION: "+format+": %w", append(args, syscall.EINVAL)...)
}
