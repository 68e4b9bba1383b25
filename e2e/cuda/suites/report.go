package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// A tally counts a suite's results.
type tally struct{ total, passed, failed, expected, listed, unbuilt int }

// counted is the number of tests that are not on the list.
func (t tally) counted() int { return t.passed + t.failed }

func (t tally) share() string {
	if t.counted() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(t.passed)/float64(t.counted()))
}

// count counts results by suite.
func count(all []result) map[string]tally {
	tallies := make(map[string]tally)
	for _, r := range all {
		t := tallies[r.Suite]
		t.total++
		switch r.Outcome {
		case passed:
			t.passed++
		case failed:
			t.failed++
		case xfailed:
			t.expected++
		case listed:
			t.listed++
		case unbuilt:
			t.unbuilt++
		}
		tallies[r.Suite] = t
	}
	return tallies
}

// report prints the results of tests. It writes the page if these are all tests.
func report(tests []*test, rs *results, o *options) error {
	var all []result
	left := make(map[string]int)
	for _, t := range tests {
		r, ok := rs.has(t)
		if !ok {
			left[t.Suite]++
			continue
		}
		if t.skip != "" {
			r = result{Suite: t.Suite, Name: t.Name, Outcome: listed, Cause: t.skip}
		}
		all = append(all, r)
	}
	for _, r := range all {
		if r.Outcome == failed {
			fmt.Printf("FAILED %s %s: %s\n", r.Suite, r.Name, r.Cause)
		}
	}
	fmt.Print(table(all))
	fmt.Print(rest(left))
	fmt.Print(shares(all))
	if o.page == "" {
		return nil
	}
	if o.pattern != "" {
		fmt.Fprintf(os.Stderr, "%s is of all tests, and -run chose some: it stays as it is\n", o.page)
		return nil
	}
	return os.WriteFile(o.page, []byte(page(all, left)), 0o644)
}

// table returns the counts as a table.
func table(all []result) string {
	var b strings.Builder
	b.WriteString("| suite | tests | listed | expected to fail | do not build | counted | passed | failed | share |\n|---|---|---|---|---|---|---|---|---|\n")
	tallies := count(all)
	for _, suite := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[suite]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d | %s |\n", suite, t.total, t.listed, t.expected, t.unbuilt, t.counted(), t.passed, t.failed, t.share())
	}
	return b.String()
}

// rest says how many tests have no result, or nothing.
func rest(left map[string]int) string {
	var b strings.Builder
	for _, suite := range slices.Sorted(maps.Keys(left)) {
		fmt.Fprintf(&b, "\n%d tests of %s have not been run.\n", left[suite], suite)
	}
	return b.String()
}

// builds says which builds of vgpud gave how many of the results. Tests on the list were not run.
func builds(all []result) string {
	n := make(map[string]int)
	for _, r := range all {
		if r.Outcome != listed {
			n[cmp.Or(r.Build, "not recorded")]++
		}
	}
	var b strings.Builder
	b.WriteString("| build (commit and digest of its programs) | results |\n|---|---|\n")
	for _, build := range slices.SortedFunc(maps.Keys(n), func(a, b string) int { return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(a, b)) }) {
		fmt.Fprintf(&b, "| %s | %d |\n", build, n[build])
	}
	return b.String()
}

// shares returns a line for each suite on its kernels' preemptible forms.
func shares(all []result) string {
	sums := make(map[string]*kernels)
	for _, r := range all {
		if sums[r.Suite] == nil {
			sums[r.Suite] = new(kernels)
		}
		sums[r.Suite].add(r.Forms)
	}
	var b strings.Builder
	for _, suite := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&b, "- %s: %s.\n", suite, sums[suite])
	}
	return b.String()
}

// page returns docs/results/cuda-suites.md.
func page(all []result, left map[string]int) string {
	var b strings.Builder
	b.WriteString(`# Programs that others wrote

GCC's and Halide's own tests on the software GPU, over this project's libcuda.so.1: what ` + "`make test-cuda`" + ` found. GCC's libgomp
tests offload OpenMP and OpenACC to nvptx (C, C++, Fortran). Halide's tests, tutorials and apps have the target
` + "`" + halideTarget + "`" + `. No tool of NVIDIA's made any of the code.

A test counts as passed if it ends as its suite says and has used the GPU: the guest's own counters show the kernels and copies.
Its result is that of its last run; failed tests may have run again, which changes the result of those that compare times.
Tests on the list can't run by design. The list is [excluded.txt](../../e2e/cuda/suites/excluded.txt), which was written before the
first run, except for its last section: tests of Halide that use no GPU by their own text, as that run showed.

`)
	b.WriteString(table(all))
	b.WriteString(rest(left))
	b.WriteString("\n" + builds(all))
	b.WriteString("\n## Preemptible kernels\n\nOf the kernels that the tests' programs contain or compile:\n\n")
	b.WriteString(shares(all))
	b.WriteString("\n## Failed\n\n")
	section(&b, all, failed, "No test failed.\n")
	b.WriteString("\n## Expected to fail by the suite\n\n")
	section(&b, all, xfailed, "None.\n")
	b.WriteString("\n## Do not build\n\nTheir own compiler refuses them, so there is no program to count.\n\n")
	section(&b, all, unbuilt, "All build.\n")
	b.WriteString("\n## Listed\n\n")
	reasons := make(map[string][]string)
	for _, r := range all {
		if r.Outcome == listed {
			reasons[r.Cause] = append(reasons[r.Cause], r.Name)
		}
	}
	keys := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(reasons[b]), len(reasons[a])), cmp.Compare(a, b))
	})
	b.WriteString("| tests | reason |\n|---|---|\n")
	for _, k := range keys {
		names := fmt.Sprint(len(reasons[k]))
		if len(reasons[k]) <= 2 {
			names = strings.Join(reasons[k], ", ")
		}
		fmt.Fprintf(&b, "| %s | %s |\n", names, k)
	}
	return b.String()
}

// section writes a table of the tests with an outcome.
func section(b *strings.Builder, all []result, outcome, none string) {
	some := false
	for _, r := range all {
		if r.Outcome != outcome {
			continue
		}
		if !some {
			b.WriteString("| test | cause | build |\n|---|---|---|\n")
		}
		some = true
		fmt.Fprintf(b, "| %s %s | %s | %s |\n", r.Suite, r.Name, causeOf(r), cmp.Or(r.Build, "not recorded"))
	}
	if !some {
		b.WriteString(none)
	}
}
