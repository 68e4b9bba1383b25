package vm

import (
	"testing"

	"vgpud/mediator/ipc"
)

// TestUUIDs checks that a guest keeps its virtual GPU's UUID on another physical GPU and after a
// change of its terms, and that no two guests share one.
func TestUUIDs(t *testing.T) {
	a := ipc.Spec{Name: "a", GPU: ipc.GPU{Name: "0"}}
	moved := ipc.Spec{Name: "a", GPU: ipc.GPU{Name: "1"}, MemoryLimit: 1 << 30}
	if uuidOf(&a, "host") != uuidOf(&moved, "host") {
		t.Error("another GPU or limit changes the UUID")
	}
	domain := ipc.Spec{Name: "a", DomainUUID: "AB"}
	if uuidOf(&domain, "host") != uuidOf(&ipc.Spec{Name: "a", DomainUUID: "ab"}, "other host") {
		t.Error("a domain's UUID depends on the host or on the case of letters")
	}
	seen := map[[16]byte]int{}
	for i, u := range [][16]byte{
		uuidOf(&a, "host"), uuidOf(&a, "other host"), uuidOf(&ipc.Spec{Name: "b"}, "host"), uuidOf(&domain, "host"),
		uuidOf(&ipc.Spec{Name: "b", DomainUUID: "ab"}, "host"), uuidOf(&ipc.Spec{Name: "a", DomainUUID: "cd"}, "host"),
	} {
		if other, taken := seen[u]; taken {
			t.Errorf("guests %d and %d have the same UUID", other, i)
		}
		seen[u] = i
		if u[6]>>4 != 8 || u[8]>>6 != 2 {
			t.Errorf("%x is no UUID of version 8", u)
		}
	}
}
