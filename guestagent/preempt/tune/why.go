package tune

// Why says how a choice came about.
type Why uint8

// The reasons.
const (
	// WhyMeasuring: nothing is settled yet.
	WhyMeasuring Why = iota
	// WhyShort: the original, which ends by itself within the latency wanted.
	WhyShort
	// WhyCheapest: the cheapest that leaves within the latency wanted, and costs less than the bound. None that leaves
	// sooner is free.
	WhyCheapest
	// WhySlow: nothing leaves within the latency wanted; of what costs less than the bound, the one that leaves the
	// soonest.
	WhySlow
	// WhySoonest: of the free ones that leave within the latency wanted, the one that leaves the soonest.
	WhySoonest
	// WhyDear: the original, since every form costs more than the bound.
	WhyDear
	// WhyNoForm: the original, since no form is offered for this grid, or would be of use: the GPU holds all of its
	// blocks at once.
	WhyNoForm
	// WhyUnmeasured: the original, since launches could not be timed.
	WhyUnmeasured

	whyEnd
)

var whyNames = [whyEnd]string{"measuring", "short", "cheapest", "slow", "soonest", "dear", "no-form", "unmeasured"}

// String is a word for the reason.
func (w Why) String() string {
	if w < whyEnd {
		return whyNames[w]
	}
	return "unknown"
}

// MarshalText and UnmarshalText write and read String's word; an unknown word reads as WhyMeasuring.
func (w Why) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText is MarshalText's inverse.
func (w *Why) UnmarshalText(b []byte) error {
	*w = WhyMeasuring
	for i, name := range whyNames {
		if name == string(b) {
			*w = Why(i)
		}
	}
	return nil
}
