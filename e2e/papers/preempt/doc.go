// Command preemptbench redoes the experiments of EffiSha (§8, figures 9 to 15)
// and FLEP (§6, figures 7 to 17) in simulated time, with the corpus of kernels
// in the place of the papers' benchmarks and this project's forms and policies
// beside the papers'. It prints tables, and with -out writes them, one JSON file
// and one page of drawings. Its results are a model's, and the same each time.
//
// To read: notes.go holds the model of package blocks against what was measured
// on an H100; corpus.go makes the corpus' kernels the model's; forms.go chooses
// forms; program.go is a kernel with a form as a scheduler sees it; world.go runs
// programs under a policy; effisha.go and flep.go are the figures; targets.go is
// what must be reached; report.go writes.
package main
