package api

// Launches counts a guest's or a GPU's kernels by where they stand now. Those
// that run include those that are on their way to the GPU.
type Launches struct {
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	// Leaving are those that were told to leave the GPU and are still there.
	Leaving int `json:"leaving"`
}

// Preemption is what there is to say of a guest's kernels where the policy
// decides about kernels, or takes them off the GPU.
type Preemption struct {
	Launches Launches `json:"launches"`
	// Evictions is how often kernels of the guest were taken off the GPU, and
	// EvictionSeconds how long that took in all, from the word that they are to
	// leave until their last blocks had.
	Evictions       uint64  `json:"evictions"`
	EvictionSeconds float64 `json:"eviction_seconds"`
	// Caused is how many evictions, of anybody's kernels, were for the guest's
	// sake, and ChargedSeconds what these cost, which it is charged with.
	Caused         uint64  `json:"caused"`
	ChargedSeconds float64 `json:"charged_seconds"`
	// Liars are kernels that were said to leave when told and did not.
	Liars uint64 `json:"liars"`
	// IgnoredPriorities are launches that asked for a priority above the guest's
	// ceiling.
	IgnoredPriorities uint64     `json:"ignored_priorities"`
	Prediction        Prediction `json:"prediction"`
}

// Prediction is how well kernels' durations were foreseen, since the daemon's
// start.
type Prediction struct {
	// Launches is how many ended of which there was a prediction. PredictedSeconds
	// is what these were expected to take, MeasuredSeconds what they took, and
	// ErrorRatio the mean of the differences, each as a part of what it took.
	Launches         uint64  `json:"launches"`
	PredictedSeconds float64 `json:"predicted_seconds"`
	MeasuredSeconds  float64 `json:"measured_seconds"`
	ErrorRatio       float64 `json:"error_ratio"`
}

// Evictions are how long kernels took to leave a GPU when told, from the word
// until their last blocks had left. They count from the daemon's start.
type Evictions struct {
	Count   uint64  `json:"count"`
	Seconds float64 `json:"seconds"`
	// P50 and P99 are in seconds, of the newest thousand since the policy was set;
	// 0 where none was.
	P50 float64 `json:"p50_seconds"`
	P99 float64 `json:"p99_seconds"`
	// Buckets are cumulative, as Prometheus has them.
	Buckets []Bucket `json:"buckets,omitempty"`
	// Asked counts the policy's words to leave, by whether taking a part of the SMs
	// was enough.
	Asked Asked `json:"asked"`
}

// Asked counts evictions as they are asked for: of some SMs, where that was
// enough; else of all, by why it was not: the two kernels can't be on the GPU at
// one time, the other needs all SMs, nobody knows how many it needs, or it was no
// question.
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
