// Command quotas measures in simulated time how well caps, guarantees and budgets hold: the
// daemon's scheduler and its sampler share a model of a GPU among 2 to 32 guests, under several
// policies and loads. It prints a page; with -out it also writes that page and a JSON file. The
// results are the same each time.
//
// The files: world.go is the model, with guests as their executors drive them; program.go is what
// guests do; trial.go is one run; measure.go compares what guests used with their quotas over every
// five seconds of it; scenarios.go lists the runs; report.go makes rows, conclusions and the page.
package main
