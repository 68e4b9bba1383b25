package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/e2e/papers/parallel"
)

// request is what the flags ask for.
type request struct {
	out, timed, checked, live, gpu, jobs, program string
	find, begin                                   bool
	runs                                          int
}

func main() {
	var q request
	flag.StringVar(&q.out, "out", "", "directory for the report, the JSON and the drawings; none: print only")
	flag.BoolVar(&q.find, "fit", false, "find the factors by which single assignment alone gives the paper's table 7")
	flag.StringVar(&q.timed, "time", "", "directory for the times that decisions take on this machine")
	flag.StringVar(&q.live, "live", "", "directory for what real processes on GPUs in software give")
	flag.BoolVar(&q.begin, "begin", false, "have -live measure begin_us alone")
	flag.IntVar(&q.runs, "runs", 5, "how often -live runs W1 in both ways")
	flag.StringVar(&q.program, "vgpud", "", "the vgpud that -live runs; none: it is built from this tree")
	flag.StringVar(&q.gpu, "gpu", "", "file of e2e/nvidia/run --part case, whose rows go to the directory of -out")
	flag.StringVar(&q.jobs, "jobs", "", "file for W1's jobs, as -live and e2e/nvidia run them")
	flag.StringVar(&q.checked, "check", "", "directory whose results are compared with the goals")
	flag.Parse()
	if flag.NArg() > 0 || q.gpu != "" && q.out == "" || q.runs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := q.carryOut(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "case:", err)
		os.Exit(1)
	}
}

// carryOut does what the flags say.
func (q *request) carryOut(ctx context.Context) error {
	switch {
	case q.find:
		fit(os.Stdout)
		return nil
	case q.timed != "":
		return timeDecisions(q.timed)
	case q.live != "":
		return runLive(ctx, q.live, q.program, q.runs, q.begin)
	case q.gpu != "":
		return takeGPU(q.out, q.gpu)
	case q.jobs != "":
		return writeJobs(q.jobs)
	case q.checked != "":
		return goalSet.Check(os.Stdout, q.checked)
	}
	parallel.Show(parallel.NewProgress("case", os.Stderr, clock.Real{}, 10*time.Second))
	r, err := everything(whole)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	if q.out == "" {
		return nil
	}
	return r.write(q.out)
}
