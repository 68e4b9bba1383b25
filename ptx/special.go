package ptx

import (
	"strconv"
	"strings"
)

// specials holds the predefined special registers (§10) with their types.
var specials = map[string]*Symbol{}

func init() {
	add := func(t Type, vector int, names string) {
		for _, n := range strings.Fields(names) {
			specials[n] = &Symbol{Kind: SymSpecial, Name: n, Type: t, Vector: vector}
		}
	}
	add(U32, 4, "%tid %ntid %ctaid %nctaid %clusterid %nclusterid %cluster_ctaid %cluster_nctaid")
	add(U32, 0, `%laneid %warpid %nwarpid %smid %nsmid %cluster_ctarank %cluster_nctarank
		%lanemask_eq %lanemask_le %lanemask_lt %lanemask_ge %lanemask_gt
		%clock %clock_hi %globaltimer_lo %globaltimer_hi
		%total_smem_size %aggr_smem_size %dynamic_smem_size`)
	add(B32, 0, `%reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap
		%reserved_smem_offset_0 %reserved_smem_offset_1`)
	add(U64, 0, "%gridid %clock64 %globaltimer %current_graph_exec")
	add(Pred1, 0, "%is_explicit_cluster")
	for i := range 8 {
		n := strconv.Itoa(i)
		add(U32, 0, "%pm"+n)
		add(U64, 0, "%pm"+n+"_64")
	}
	for i := range 32 {
		add(B32, 0, "%envreg"+strconv.Itoa(i))
	}
}

// Special returns the symbol of the predefined special register called name, or nil. All functions
// of all modules share it.
func Special(name string) *Symbol { return specials[name] }
