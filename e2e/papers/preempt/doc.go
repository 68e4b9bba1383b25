// Command preemptbench repeats the experiments of EffiSha (§8, figures 9 to 15) and FLEP (§6,
// figures 7 to 17) in simulated time. It uses the corpus of kernels in place of the papers'
// benchmarks, and compares this project's forms and policies with the papers'. It prints tables;
// with -out it also writes them, a JSON file and a page of plots. The results come from a model,
// and are the same in each run.
//
// The files: notes.go compares the model of package blocks with measurements on an H100; corpus.go
// derives the model's kernels from the corpus; forms.go chooses forms; program.go is a kernel in
// one form as a scheduler sees it; world.go simulates programs under a policy; effisha.go and
// flep.go compute the figures; targets.go holds the targets; report.go writes the results.
package main
