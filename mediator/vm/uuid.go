package vm

import (
	"crypto/sha256"
	"os"
	"strings"

	"vgpud/mediator/ipc"
)

// uuidOf returns the UUID of a guest's virtual GPU. It is the same each time the guest is started,
// whichever physical GPU it is placed on, and tells nothing about that GPU. Guests that libvirt
// knows are distinguished by their domains' UUIDs, others by the host's identity.
func uuidOf(s *ipc.Spec, machine string) [16]byte {
	host := machine
	if s.DomainUUID != "" {
		host = "domain " + strings.ToLower(s.DomainUUID)
	}
	sum := sha256.Sum256([]byte("vgpud virtual GPU\x00" + host + "\x00" + s.Name))
	u := [16]byte(sum[:16])
	u[6] = u[6]&0x0f | 0x80 // RFC 9562: version 8, of the maker's own kind
	u[8] = u[8]&0x3f | 0x80
	return u
}

// machineID returns the host's identity, or "" if it has none.
func machineID() string {
	b, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
