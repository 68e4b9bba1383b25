package simt

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"vgpud/gpu/corpus"
)

var update = flag.Bool("update", false, "write the corpus' registers anew")

// TestCorpusRegisters compares the corpus' table of registers with what this compiler allots, and
// checks what EDGE's figure 12 rests on.
func TestCorpusRegisters(t *testing.T) {
	var text strings.Builder
	for _, k := range corpus.All() {
		module, err := Load(t.Context(), parse(t, k.PTX(corpus.SM80)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range module.kernels {
			a := entry.Attributes()
			fmt.Fprintln(&text, k.Name, a.Name, a.Registers)
			if got := k.Registers(a.Name); got != a.Registers && !*update {
				t.Errorf("%s of %s has %d registers, the table %d", a.Name, k.Name, a.Registers, got)
			}
		}
	}
	if *update {
		if err := os.WriteFile("../../corpus/registers.txt", []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	most := func(kernel, entry string) int {
		k, _ := corpus.ByName(kernel)
		return k.Registers(entry)
	}
	small := min(most("backprop", "backprop_forward"), most("bfs", "bfs_level"))
	for _, ip := range []int{most("ipv4", "ipv4_forward"), most("ipv6", "ipv6_forward")} {
		if ip > small {
			t.Errorf("forwarding has %d registers, backprop or bfs only %d", ip, small)
		}
	}
	for _, big := range []int{most("memcached", "memcached_get"), most("ipsec", "ipsec_decipher")} {
		if big <= max(most("backprop", "backprop_adjust"), most("backprop", "backprop_forward"), most("bfs", "bfs_level")) ||
			big > min(most("matmul", "matmul"), most("convolution", "conv_color")) {
			t.Errorf("an event of %d registers fits where a warp of backprop or bfs was, or not where one of matmul or convolution was", big)
		}
	}
}
