package api

// Control is what the daemon does to a guest's contexts through the GPU's driver.
type Control struct {
	// Contexts is how many of the guest's contexts can be controlled, and Disabled how many have
	// their channels off the GPU now.
	Contexts int `json:"contexts"`
	Disabled int `json:"disabled"`
	// Disables counts contexts that were taken off the GPU. DisableSeconds is the driver's time for
	// that, EnableSeconds its time for putting them back, and DisabledSeconds how long those that
	// are back were off.
	Disables        uint64  `json:"disables"`
	DisableSeconds  float64 `json:"disable_seconds"`
	EnableSeconds   float64 `json:"enable_seconds"`
	DisabledSeconds float64 `json:"disabled_seconds"`
	// TimeSliceSeconds is how long a context runs before another's turn; 0 means the driver's
	// default. TimeSlices counts how often it was set.
	TimeSliceSeconds float64 `json:"time_slice_seconds,omitempty"`
	TimeSlices       uint64  `json:"time_slices"`
	// Errors counts failed calls of the driver; Problem is the last failure, until a call succeeds.
	Errors  uint64 `json:"errors"`
	Problem string `json:"problem,omitempty"`
}
