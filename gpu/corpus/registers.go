package corpus

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// registersText has a line for each entry: the kernel's name, the entry's, its registers a thread.
// A test of gpu/soft/simt writes it (go test ./gpu/soft/simt -run TestCorpusRegisters -update).
//
//go:embed registers.txt
var registersText string

var registersOf = sync.OnceValue(func() map[string]int {
	counts := map[string]int{}
	for line := range strings.Lines(registersText) {
		var kernel, entry string
		var n int
		if _, err := fmt.Sscan(line, &kernel, &entry, &n); err != nil {
			panic(fmt.Sprintf("corpus: registers.txt: line %q: %v", line, err)) // a test reads it all
		}
		counts[kernel+" "+entry] = n
	}
	return counts
})

// Registers returns the 32-bit registers of a thread of one of the kernel's entries, as the compiler
// of the soft GPU allots them: the most that are alive at a time after linear scan, 16 at least. It
// returns 0 for an entry that the kernel lacks.
func (k Kernel) Registers(entry string) int { return registersOf()[k.Name+" "+entry] }
