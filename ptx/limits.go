package ptx

import (
	"strconv"
	"strings"
)

// Architecture returns the number of the architecture in the module's target, such as 90 for
// sm_90a, or 0 if there is none.
func (m *Module) Architecture() int {
	for _, t := range m.Target {
		if digits, ok := strings.CutPrefix(t, "sm_"); ok {
			n, err := strconv.Atoi(strings.TrimRight(digits, "abcdefghijklmnopqrstuvwxyz"))
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// MaxParamBytes returns how many bytes of parameters a kernel of the module may have: 4,352, and
// 32,764 from version 8.1 and sm_70 on (§5.1.6.1).
func (m *Module) MaxParamBytes() int64 {
	if m.Version.Less(Version{8, 1}) || m.Architecture() < 70 {
		return 4352
	}
	return 32764
}
