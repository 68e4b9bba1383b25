package ptx

import (
	"fmt"
	"testing"
)

func TestMaxParamBytes(t *testing.T) {
	for _, c := range []struct {
		version, target string
		architecture    int
		most            int64
	}{
		{"7.8", "sm_80", 80, 4352},
		{"8.0", "sm_90", 90, 4352},
		{"8.1", "sm_52", 52, 4352},
		{"8.1", "sm_70", 70, 32764},
		{"9.0", "sm_90a, debug", 90, 32764},
		{"8.5", "texmode_independent, sm_80", 80, 32764},
	} {
		m, err := Parse(fmt.Sprintf(".version %s\n.target %s\n.address_size 64\n", c.version, c.target))
		if err != nil {
			t.Fatal(err)
		}
		if m.Architecture() != c.architecture || m.MaxParamBytes() != c.most {
			t.Errorf("PTX %s for %s: architecture %d, at most %d bytes of parameters; want %d, %d",
				c.version, c.target, m.Architecture(), m.MaxParamBytes(), c.architecture, c.most)
		}
	}
}
