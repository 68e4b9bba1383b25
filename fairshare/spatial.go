package fairshare

import (
	"fmt"
	"math"
)

// SpatialUse is whether evicting a launch from some of the SMs would have done,
// and if not, why.
type SpatialUse uint8

const (
	// SpatialNotConsidered is where nobody asked: all SMs are wanted anyway.
	SpatialNotConsidered SpatialUse = iota
	// SpatialUseful is an eviction from just enough SMs.
	SpatialUseful
	// SpatialTakesTurns is that the two launches cannot be on the GPU at one
	// time, so that SMs freed for one would be idle while the other runs.
	SpatialTakesTurns
	// SpatialNeedsAll is that the launch to come needs all SMs, together with
	// what else runs.
	SpatialNeedsAll
	// SpatialUnknown is that nobody knows how many SMs the launches need.
	SpatialUnknown
)

var spatialUseNames = [...]string{"", "useful", "takes-turns", "needs-all", "unknown"}

// String is the use's name in metrics and logs.
func (u SpatialUse) String() string {
	if int(u) < len(spatialUseNames) {
		return spatialUseNames[u]
	}
	return fmt.Sprintf("SpatialUse(%d)", uint8(u))
}

// everywhere is the bound of an eviction from all SMs.
const everywhere = math.MaxUint32

// sms is how many SMs hold all that is left of l at a time, of those that the GPU
// has; zero is unknown.
func (st *State) sms(l *Launch) uint32 {
	if l.Blocks == 0 || l.PerSM == 0 || st.SMs == 0 {
		return 0
	}
	n := (l.Blocks-1)/uint64(l.PerSM) + 1
	return uint32(min(n, uint64(st.SMs)))
}

// sideBySide is whether two launches can be on the GPU at one time.
func (st *State) sideBySide(a, b *Launch) bool {
	return st.CoRuns || a.Guest == b.Guest && a.Context == b.Context
}
