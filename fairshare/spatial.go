package fairshare

import (
	"fmt"
	"math"
)

// SpatialUse reports whether it would have been enough to evict a launch from some of the SMs, and
// if not, why.
type SpatialUse uint8

const (
	// SpatialNotConsidered means that the question did not arise: all SMs are wanted anyway.
	SpatialNotConsidered SpatialUse = iota
	// SpatialUseful is an eviction from just enough SMs.
	SpatialUseful
	// SpatialTakesTurns means that the two launches cannot be on the GPU at one time, so that SMs
	// freed for one would be idle while the other runs.
	SpatialTakesTurns
	// SpatialNeedsAll means that the next launch needs all SMs, together with the other launches
	// that run.
	SpatialNeedsAll
	// SpatialUnknown means that it is not known how many SMs the launches need.
	SpatialUnknown
)

var spatialUseNames = [...]string{"", "useful", "takes-turns", "needs-all", "unknown"}

// String returns the use's name in metrics and logs.
func (u SpatialUse) String() string {
	if int(u) < len(spatialUseNames) {
		return spatialUseNames[u]
	}
	return fmt.Sprintf("SpatialUse(%d)", uint8(u))
}

// everywhere is the bound of an eviction from all SMs.
const everywhere = math.MaxUint32

// sms returns how many of the GPU's SMs hold all that is left of l at a time. Zero is unknown.
func (st *State) sms(l *Launch) uint32 {
	if l.Blocks == 0 || l.PerSM == 0 || st.SMs == 0 {
		return 0
	}
	n := (l.Blocks-1)/uint64(l.PerSM) + 1
	return uint32(min(n, uint64(st.SMs)))
}

// sideBySide reports whether two launches can be on the GPU at one time.
func (st *State) sideBySide(a, b *Launch) bool {
	return st.CoRuns || a.Guest == b.Guest && a.Context == b.Context
}
