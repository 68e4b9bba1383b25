package api

// Launches counts a guest's or a GPU's launches by their current state. Running includes those on
// their way to the GPU.
type Launches struct {
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	// Leaving are those that were told to leave the GPU and are still there.
	Leaving int `json:"leaving"`
}

// Preemption describes a guest's kernels under a policy that decides about kernels or evicts them.
type Preemption struct {
	Launches Launches `json:"launches"`
	// Evictions counts evictions of the guest's kernels, and EvictionSeconds their total time, from
	// the request until the last block has left.
	Evictions       uint64  `json:"evictions"`
	EvictionSeconds float64 `json:"eviction_seconds"`
	// EvictionTimes are the times from the request until the last block has left, since the daemon's
	// start.
	EvictionTimes Histogram `json:"eviction_times,omitzero"`
	// Caused counts evictions, of any guest's kernels, for this guest, and ChargedSeconds is their
	// cost, which this guest is charged.
	Caused         uint64  `json:"caused"`
	ChargedSeconds float64 `json:"charged_seconds"`
	// Unresponsive counts kernels launched as preemptible that did not leave when told to.
	Unresponsive uint64 `json:"liars"`
	// IgnoredPriorities counts launches with a priority above the guest's ceiling.
	IgnoredPriorities uint64     `json:"ignored_priorities"`
	Prediction        Prediction `json:"prediction"`
}

// Prediction describes the accuracy of predicted durations since the daemon's start.
type Prediction struct {
	// Launches counts the completed launches with a prediction. PredictedSeconds and
	// MeasuredSeconds are sums over them, and ErrorRatio is the mean of the differences, each
	// relative to the measured time.
	Launches         uint64  `json:"launches"`
	PredictedSeconds float64 `json:"predicted_seconds"`
	MeasuredSeconds  float64 `json:"measured_seconds"`
	ErrorRatio       float64 `json:"error_ratio"`
}

// Evictions describes the times from the request to leave a GPU until the last block has left,
// since the daemon's start.
type Evictions struct {
	Count   uint64  `json:"count"`
	Seconds float64 `json:"seconds"`
	// P50 and P99 are in seconds, of the last thousand since the policy was set; 0 without any.
	P50 float64 `json:"p50_seconds"`
	P99 float64 `json:"p99_seconds"`
	// Buckets are cumulative, as in Prometheus.
	Buckets []Bucket `json:"buckets,omitempty"`
	// Asked counts the policy's requests to leave, by whether a part of the SMs was enough.
	Asked Asked `json:"asked"`
}

// Histogram is a distribution of times.
type Histogram struct {
	Count   uint64  `json:"count"`
	Seconds float64 `json:"seconds"`
	// Buckets are cumulative, as in Prometheus; none if Count is 0.
	Buckets []Bucket `json:"buckets,omitempty"`
}

// IsZero reports whether nothing was counted.
func (h Histogram) IsZero() bool { return h.Count == 0 }

// Asked counts eviction requests: for some SMs if that was enough, otherwise for all, by the
// reason: the two kernels can't be on the GPU at the same time, the other needs all SMs, it is not
// known how many it needs, or a part was not considered.
type Asked struct {
	SomeSMs    uint64 `json:"some_sms"`
	TakesTurns uint64 `json:"takes_turns"`
	NeedsAll   uint64 `json:"needs_all"`
	Unknown    uint64 `json:"unknown"`
	Whole      uint64 `json:"whole"`
}

// Bucket counts the evictions that took at most UpTo seconds.
type Bucket struct {
	UpTo  float64 `json:"up_to_seconds"`
	Count uint64  `json:"count"`
}
