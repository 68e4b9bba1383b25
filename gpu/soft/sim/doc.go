// Package sim runs guests on the soft GPU's machine in simulated time: ten seconds of sixteen guests in milliseconds,
// deterministic and seeded, for what watches the GPU (accounting) and for what decides about it (fairshare).
//
// A [Sim] is an accounting.Simulation, the same registers as a live soft GPU's read as accounting reads those, and an
// accounting.Gate. Its guests are closed loops: each keeps so many commands in its ring, draws the next one's length
// from a distribution, and thinks between a command's end and the next one's submission. Holding a guest stops the
// feeding of its ring to the GPU; what was fetched runs on (LoGA §4.3).
package sim
