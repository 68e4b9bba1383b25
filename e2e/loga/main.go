// Command loga redoes the experiments of the LoGA paper in simulated time:
// figures 7 to 11 on the soft GPU's machine, with the corpus of kernels in the
// place of the paper's benchmarks, and the targets that accounting and fair
// queueing are held to. It prints tables, and with -out writes them with a
// drawing of each figure. Its results are the same each time.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vgpud/e2e/kernels"
)

func main() {
	out := flag.String("out", "", "directory for the report and the figures; none: print only")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, *out); err != nil {
		fmt.Fprintln(os.Stderr, "loga:", err)
		os.Exit(1)
	}
}

// run prints the report, and writes it to dir unless that is empty.
func run(w io.Writer, dir string) error {
	apps, err := interpret(kernels.Trivial)
	if err != nil {
		return err
	}
	figures, err := allFigures(apps)
	if err != nil {
		return err
	}
	reached, err := targets(scenarios(apps, []int{1, 2, 3, 4, 6, 8, 12, 16}, 4), 10*time.Second)
	if err != nil {
		return err
	}
	for i := range figures {
		fmt.Fprintln(w, figures[i].Text())
	}
	fmt.Fprintln(w, targetText(reached))
	if dir == "" {
		return nil
	}
	return write(dir, figures, reached)
}

func allFigures(apps []application) ([]figure, error) {
	const seconds = 5 * time.Second
	makers := []func() (figure, error){
		func() (figure, error) {
			return overhead(apps, "7a", 10*time.Microsecond, seconds, "NEON +11.4 % in the mean, at worst +23.4 %; LoGA not above 0")
		},
		func() (figure, error) {
			return overhead(apps, "7b", 100*time.Microsecond, seconds, "NEON +7.6 % in the mean; LoGA +0.7 %")
		},
		func() (figure, error) { return byThrottles(apps, []int{1, 2, 4, 8, 12, 16, 20}, 2*seconds) },
		func() (figure, error) { return kernelLength(10 * time.Second) },
		func() (figure, error) { return load(10 * time.Second) },
		func() (figure, error) { return scheduling(apps, seconds) },
	}
	var figures []figure
	for _, make := range makers {
		f, err := make()
		if err != nil {
			return nil, fmt.Errorf("figure %s: %w", f.Number, err)
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// write puts the report and the drawings into dir.
func write(dir string, figures []figure, reached []target) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(reportHead)
	b.WriteString("## Targets\n\n```\n" + targetText(reached) + "```\n")
	for i := range figures {
		f := &figures[i]
		name := "loga-figure" + f.Number + ".svg"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(f.SVG()), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n## Figure %s\n\n![%s](%s)\n\n```\n%s```\n", f.Number, f.Title, name, f.Text())
	}
	return os.WriteFile(filepath.Join(dir, "loga.md"), []byte(b.String()), 0o644)
}

const reportHead = `# LoGA's experiments, redone in simulated time

Made by ` + "`make bench-loga`" + `, the same each time. The GPU is the soft GPU's machine: exclusive, round-robin, without
preemption (LoGA §2.2). Programs are the corpus' kernels at their smallest size, with the lengths that the soft GPU's cost
model gives them. In figures 7, 8 and 11 a program waits for each of its launches, and works on the host between two rounds of
them for up to as long as they took, drawn from its name. NEON is configured as the paper did: 12 channels an application, 1 ms
of sampling and 5 ms of free run for each.

What watching costs the guests is not measured here: reading a register costs the model nothing.

`
