package api

// Control is what the daemon does to a guest's contexts through the GPU's driver.
type Control struct {
	// Contexts is how many of the guest's contexts can be controlled, and Disabled how
	// many have their channels off the GPU now.
	Contexts int `json:"contexts"`
	Disabled int `json:"disabled"`
	// Disables counts contexts that were taken off the GPU, DisableSeconds is how long
	// the driver took for that, EnableSeconds for putting them back, and
	// DisabledSeconds how long they were off, of those that are back.
	Disables        uint64  `json:"disables"`
	DisableSeconds  float64 `json:"disable_seconds"`
	EnableSeconds   float64 `json:"enable_seconds"`
	DisabledSeconds float64 `json:"disabled_seconds"`
	// TimeSliceSeconds is how long a context runs before another's turn; 0 is the
	// driver's own choice. TimeSlices counts how often that was set.
	TimeSliceSeconds float64 `json:"time_slice_seconds,omitempty"`
	TimeSlices       uint64  `json:"time_slices"`
	// Errors counts calls of the driver that failed; Problem is the newest, until one
	// works.
	Errors  uint64 `json:"errors"`
	Problem string `json:"problem,omitempty"`
}
