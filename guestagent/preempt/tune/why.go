package tune

// Why is the reason for a choice.
type Why uint8

// The reasons for a choice.
const (
	// WhyMeasuring means that the choice is not made yet.
	WhyMeasuring Why = iota
	// WhyShort is the original, which ends by itself within the wanted latency.
	WhyShort
	// WhyCheapest is the cheapest form that leaves within the wanted latency, at a cost within the
	// bound. No form that leaves sooner is free.
	WhyCheapest
	// WhySlow is the form that leaves the soonest among those whose cost is within the bound; none
	// leaves within the wanted latency.
	WhySlow
	// WhySoonest is the form that leaves the soonest among the free ones that leave within the
	// wanted latency.
	WhySoonest
	// WhyTooCostly is the original, since every form costs more than the bound.
	WhyTooCostly
	// WhyNoForm is the original, since no form is offered for this grid or would help: the GPU
	// holds all of its blocks at once.
	WhyNoForm
	// WhyUnmeasured is the original, since launches could not be timed.
	WhyUnmeasured
	// WhySuspended is the original, since the hardware takes it off the GPU sooner than a task ends.
	WhySuspended

	whyEnd
)

var whyNames = [whyEnd]string{"measuring", "short", "cheapest", "slow", "soonest", "dear", "no-form", "unmeasured", "suspended"}

// String returns a word for the reason.
func (w Why) String() string {
	if w < whyEnd {
		return whyNames[w]
	}
	return "unknown"
}

// MarshalText encodes a reason as String's word.
func (w Why) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText decodes String's word; an unknown word becomes WhyMeasuring.
func (w *Why) UnmarshalText(b []byte) error {
	*w = WhyMeasuring
	for i, name := range whyNames {
		if name == string(b) {
			*w = Why(i)
		}
	}
	return nil
}
