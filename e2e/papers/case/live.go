package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
	"vgpud/e2e/papers/goals"

	"vgpud/e2e/papers/case/live"
	"vgpud/fairshare/place"
	"vgpud/gpu/corpus"
)

// liveFile has the rows that are measured with processes.
const liveFile = "case-live.json"

// livePage is what the file holds.
type livePage struct {
	// Machine is where the live_ rows, begin_us and launch_added were measured, and GPUs where the
	// gpu_ rows were; "" before.
	Machine string      `json:"machine"`
	GPUs    string      `json:"gpus"`
	Rows    []goals.Row `json:"rows"`
}

// The live host: W1 at 1:64 of its memory, and at 1:4 of its time, so that a batch takes 28 s where a GPU
// belongs to one job at a time.
const (
	liveGPUs    = 4
	liveMemory  = 64
	liveTime    = 4
	liveBegins  = 30
	livePairs   = 8
	liveRounds  = 150
	liveTurn    = 20
	liveWarp    = time.Microsecond
	liveLongest = 100 * time.Millisecond
	liveOther   = 2 << 20
)

// liveShape is a kernel that has all SMs of a live GPU full, but for its last blocks.
var liveShape = corpus.ThrottleConfig{Blocks: 96, Threads: 128}

// runLive measures with processes on GPUs in software, and writes the rows; begin has it measure begin_us
// alone.
func runLive(ctx context.Context, dir, program string, runs int, begin bool) (err error) {
	if program == "" {
		built, err := os.MkdirTemp("", "case-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(built)) }()
		program = filepath.Join(built, "vgpud")
		build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/vgpud")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build vgpud: %w\n%s", err, out)
		}
		// Executors have users of their own.
		if err := os.Chmod(built, 0o755); err != nil {
			return err
		}
	}
	h, err := live.Start(ctx, program, liveGPUs, live.ModelGPUMemory/liveMemory, liveWarp)
	if h != nil {
		defer func() { err = errors.Join(err, h.Close()) }()
	}
	if err != nil {
		return err
	}
	var rows []goals.Row
	if begin {
		var r goals.Row
		r, err = beginRow(ctx, h)
		rows = []goals.Row{r}
	} else {
		rows, err = liveRows(ctx, h, runs)
	}
	if err != nil {
		return err
	}
	explain(rows)
	return updateLive(dir, func(p *livePage) {
		p.Machine = fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
		p.put(rows)
	})
}

// liveRows measures the rows.
func liveRows(ctx context.Context, h *live.Host, runs int) ([]goals.Row, error) {
	kernel, err := live.Calibrate(ctx, &h.Options, liveShape, 20, 120)
	if err != nil {
		return nil, err
	}
	model, err := live.W1()
	if err != nil {
		return nil, err
	}
	scale := live.Scale{Memory: liveMemory, Copies: liveMemory, Time: liveTime, Kernel: kernel, Longest: liveLongest, Other: liveOther}
	jobs := scale.Jobs(model)
	var gains, single, floating []float64
	oom := 0
	for i := range runs {
		c, err := live.Compare(ctx, &h.Options, jobs)
		if err != nil {
			return nil, err
		}
		gains, single, floating = append(gains, c.Gain()), append(single, c.Single.Seconds), append(floating, c.Floating.Seconds)
		oom += c.OutOfMemory()
		fmt.Printf("run %d: %.2f s by single assignment, %.2f s floating: %.3f times the throughput, %d out of memory\n",
			i+1, c.Single.Seconds, c.Floating.Seconds, c.Gain(), c.OutOfMemory())
	}
	begin, err := beginRow(ctx, h)
	if err != nil {
		return nil, err
	}
	launches, err := live.Launch(ctx, &h.Options, livePairs, liveRounds, liveTurn)
	if err != nil {
		return nil, err
	}
	sa := measured("live_sa", statOf(gains), runs)
	sa.Beside = fmt.Sprintf("W1 at 1:%d of its memory and 1:%d of its time: %.1f s by single assignment, %.1f s floating; by the simulation %.2f",
		liveMemory, liveTime, statOf(single).mean, statOf(floating).mean, simulatedW1())
	crashed := measured("live_oom", stat{mean: float64(oom)}, runs)
	crashed.Beside = fmt.Sprintf("of %d jobs", 2*runs*len(jobs))
	added := measured("launch_added", scaled(stat{launches.Added(), statOf(launches.Pairs).spread}), len(launches.Pairs))
	added.Beside = fmt.Sprintf("medians of %d empty kernels each: %.2f µs, and %.2f µs where they float",
		len(launches.Plain), 1e6*live.Median(launches.Plain), 1e6*live.Median(launches.Floating))
	return []goals.Row{sa, crashed, begin, added}, nil
}

// beginRow measures how long contexts take to begin.
func beginRow(ctx context.Context, h *live.Host) (goals.Row, error) {
	begins, err := live.Begin(ctx, &h.Options, liveBegins, 32<<20)
	if err != nil {
		return goals.Row{}, err
	}
	begin := measured("begin_us", stat{mean: 1e6 * live.Median(begins.Floating)}, len(begins.Floating))
	begin.Beside = fmt.Sprintf("p50; until a GPU was found %.0f; a context that does not float %.0f; least %.0f; p99 %.0f",
		1e6*live.Median(begins.Waited), 1e6*live.Median(begins.Plain), 1e6*begins.Floating[0], 1e6*begins.Floating[len(begins.Floating)*99/100])
	return begin, nil
}

// explain gives rows their command and, where a goal is missed, why, and prints them.
func explain(rows []goals.Row) {
	for i := range rows {
		r := &rows[i]
		r.Command = "go run ./e2e/papers/case -live docs/results"
		if r.Missed() {
			r.Why = liveWhys[r.ID]
		}
		fmt.Printf("%s: %.4g %s, goal %s, met %v (%s)\n", r.ID, *r.Value, r.Unit, r.Goal, *r.Met, r.Beside)
	}
}

// liveWhys are why goals are missed, by row.
var liveWhys = map[string]string{
	"begin_us": "The context was made ahead, and the executor hands it over in some 0.3 ms. What is left are 23 accesses of the guest to trapped registers, for each of which two processes wake, " +
		"and four messages between three processes (docs/results/case-live.md: where a context's begin goes). A wake-up takes 30 to 150 µs on two busy processors, so that neither part fits in 200 µs there.",
	"gpu_begin_us": "Nearly all of it is the executor, not the decision (docs/results/case-live.md: where a context's begin goes).",
	"launch_added": "What both kinds of context take differs by less than the measurement is sharp on a busy host: the same code runs in both (docs/results/case-live.md: launches).",
}

// simulatedW1 is what the simulation says that W1 gains on four GPUs, with the authors' own mix.
func simulatedW1() float64 {
	jobs := on(table2[0].mix(0), &v100s, 1)
	single := simulate(&v100s, jobs, fromAllocation, newSingle)
	return simulate(&v100s, jobs, fromAllocation, newOwn(place.Config{Idle: never}, 0)).throughput() / single.throughput()
}

// updateLive changes the file of live rows in a directory.
func updateLive(dir string, change func(*livePage)) error {
	path := filepath.Join(dir, liveFile)
	var p livePage
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, err)
	}
	change(&p)
	return goals.Write(path, p)
}

// put adds rows, in place of older ones, in the order of the goals. A row that is missed keeps the why
// of the older one if it has none.
func (p *livePage) put(rows []goals.Row) {
	of := make(map[string]goals.Row)
	for _, r := range append(p.Rows, rows...) {
		if old := of[r.ID]; r.Missed() && r.Why == "" {
			r.Why = old.Why
		}
		of[r.ID] = r
	}
	p.Rows = nil
	for _, g := range goalSet.Goals {
		if r, ok := of[g.ID]; ok {
			p.Rows = append(p.Rows, r)
		}
	}
}

// takeGPU takes the gpu_ rows out of a file that e2e/nvidia/run --part case has written.
func takeGPU(dir, from string) error {
	if _, err := os.Stat(from); err != nil {
		return err
	}
	f, err := goalSet.FromGPU(from, func(id string) float64 {
		if id == "gpu_launch_added" { // a fraction there
			return 100
		}
		return 1
	}, liveWhys)
	if err != nil {
		return err
	}
	return updateLive(dir, func(p *livePage) {
		p.GPUs = f.GPU
		p.put(f.Rows)
	})
}

// writeJobs writes the jobs of W1 for package live.
func writeJobs(path string) error { return goals.Write(path, modelled(table2[0].mix(0), &v100s)) }
