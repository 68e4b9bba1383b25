// Package scheduling tests the scheduler together with real executors over a model of a GPU, in
// simulated time.
package scheduling
